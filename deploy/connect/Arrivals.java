package headwater.connect;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** That something has come: told by the thread that reads Postgres's stream, heard by the one that hands it to Kafka. */
final class Arrivals {
    private final Semaphore told = new Semaphore(0);

    /** Something has come; told for each message of a load, so it costs nothing while it was not heard yet. */
    void tell() {
        if (told.availablePermits() == 0) {
            told.release();
        }
    }

    /** Until something has come since {@link #forget}, but no longer than this. */
    void await(long millis) throws InterruptedException {
        told.tryAcquire(millis, TimeUnit.MILLISECONDS);
    }

    /** What has come until now is being looked at. */
    void forget() {
        told.drainPermits();
    }
}
