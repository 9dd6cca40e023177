package headwater.connect;

import io.debezium.connector.postgresql.PostgresConnectorTask;
import java.util.List;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's connector, at rest where its database is.
 *
 * <p>Debezium answers Connect with an empty list when it has found nothing, a hundred times a second with
 * {@code poll.interval.ms=10}. With {@code transaction.boundary=poll} Connect calls the task's {@code commit()} after
 * each answer, and Debezium then asks Connect for its stored offsets before it polls again. Connect reads its offset
 * topic to the end for that: fifty requests to the broker a second for nothing, 40 % of what an idle worker uses.
 *
 * <p>So {@code commit()} is passed on only after records. Nothing else hangs on it: Debezium confirms to the slot what
 * the stored offsets say, and those change with records alone; heartbeats are records, too.
 */
public final class PostgresConnector extends io.debezium.connector.postgresql.PostgresConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return Quiet.class;
    }

    /** The task; Connect makes it by its constructor without arguments. */
    public static final class Quiet extends PostgresConnectorTask {
        // Both are called by the task's thread; without exactly-once commit() is called by another one, and may then
        // find an answer that is not stored yet: what it holds is confirmed after the next records instead.
        private volatile boolean given;

        @Override
        public List<SourceRecord> doPoll() throws InterruptedException {
            List<SourceRecord> found = super.doPoll();
            if (found != null && !found.isEmpty()) {
                given = true;
            }
            return found;
        }

        @Override
        public void commit() throws InterruptedException {
            if (given) {
                given = false;
                super.commit();
            }
        }
    }
}
