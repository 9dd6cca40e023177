package headwater.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The timers of one key in one batch.
 *
 * <p>Of one that is registered twice Spark complains, with the key's words, in its log: so it is asked first for those that there
 * are, once a batch, and only if one is to be set.
 */
final class Timers {
  /** Of one key in the time that it is kept: each is two entries of the state, and a look at the key when it rings. */
  private static final long GRAINS = 16;

  private final StatefulProcessorHandle handle;
  private Set<Long> known;

  /**
   * Of the key at hand.
   *
   * @param fresh the key never had any: Spark need not look for them.
   */
  Timers(StatefulProcessorHandle handle, boolean fresh) {
    this.handle = handle;
    this.known = fresh ? new HashSet<>() : null;
  }

  /**
   * When what is over then may be forgotten; somewhat later, so that one timer serves what lies near in time.
   *
   * @param over microseconds.
   * @param span for how long a key's events are kept.
   */
  static long grain(long over, long span) {
    long grain = Math.max(1000, span / GRAINS);
    return (Math.floorDiv(over, grain) + 1) * grain;
  }

  /** Have one ring, for a moment in microseconds. */
  void set(long micros) {
    if (known == null) {
      known = new HashSet<>();
      CollectionConverters.asJava(handle.listTimers()).forEachRemaining(one -> known.add((Long) one));
    }
    long at = Timed.timer(micros);
    if (known.add(at)) {
      handle.registerTimer(at);
    }
  }
}
