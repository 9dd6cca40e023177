package headwater.spark;

import java.util.concurrent.TimeUnit;

/**
 * How soon a query's next batch follows upon the last one, when there is always a little to read.
 *
 * <p>A batch of thirty records costs hardly less than one of three hundred. Where processors are short a query that goes
 * from one small batch straight to the next takes them from others, and from itself: with search and cache doing so the
 * warehouse's rows were half a minute old (docs/decisions/micro-batches.md). That they are short shows in a small batch
 * that took long. Then the next one waits as long as that one took, and finds more. A query that had found nothing
 * before does not wait, nor one that has much to do.
 */
final class Pace {
  /** A small batch takes a tenth of a second when nobody else is at work. */
  private static final long SLOW_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

  /** More records than that are worth a batch. */
  private static final long FEW = 1000;

  private final long longest;
  private long began;
  private long records;

  /** Of a query that waits so long at most; 0 for one that never does. */
  Pace(long longestMillis) {
    longest = TimeUnit.MILLISECONDS.toNanos(longestMillis);
  }

  /** A batch of so many records begins. */
  void begins(long records) {
    began = System.nanoTime();
    this.records = records;
  }

  /** There was nothing to read after the last batch. */
  void idle() {
    records = Long.MAX_VALUE;
  }

  /** Waits if the last batch says so; whether it has. A query that is being stopped does not wait on. */
  boolean pause() {
    long took = System.nanoTime() - began;
    if (longest == 0 || began == 0 || records > FEW || took < SLOW_NANOS) {
      return false;
    }
    try {
      TimeUnit.NANOSECONDS.sleep(Math.min(took, longest));
      return true;
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt(); // the query looks at this itself
      return false;
    }
  }
}
