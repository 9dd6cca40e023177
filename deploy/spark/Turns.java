package headwater.spark;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * In which order queries of one kind begin their batches: one after the other, who waits longest first.
 *
 * <p>Merges into a warehouse's tables take turns anyway (spark/pulse.py). A batch that waits for its turn when it has
 * been planned holds what there was before it began to wait, and what has come meanwhile waits for two rounds. Who waits
 * here has planned nothing yet (docs/decisions/warehouse.md). It is an order and no lock: nothing is wrong if two begin
 * at once, so who has waited for very long goes on.
 */
public final class Turns {
  /** A holder that was lost would hold up all others for so long; a merge of minutes is not lost. */
  private static final long LONGEST_MS = TimeUnit.MINUTES.toMillis(10);

  private static final Map<String, Turns> NAMED = new ConcurrentHashMap<>();

  private final Deque<Waiting> line = new ArrayDeque<>();
  private Waiting holder;

  private Turns() {}

  /** A query by its source's stream, and the group of its jobs. */
  private record Waiting(Object stream, String group) {}

  /** The turns of this name, of all queries of this process. */
  static Turns of(String name) {
    return NAMED.computeIfAbsent(name, any -> new Turns());
  }

  /** Waits for the turn, and has it; false at once when the thread is interrupted. */
  synchronized boolean take(Object stream, String group) {
    Waiting mine = new Waiting(stream, group);
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONGEST_MS);
    line.addLast(mine);
    try {
      while (holder != null || line.peekFirst() != mine) {
        long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
        if (left <= 0) {
          break;
        }
        wait(left);
      }
      holder = mine;
      return true;
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt(); // the query is being stopped, and looks at this itself
      return false;
    } finally {
      line.remove(mine);
      notifyAll();
    }
  }

  /** A query has ended, or begins its next look: whatever it has is free. */
  synchronized void leave(Object stream) {
    if (holder != null && holder.stream == stream) {
      holder = null;
      notifyAll();
    }
  }

  /** The batch of a query has ended: called from Python, before Spark writes down that it has. */
  public static void done(String name, String group) {
    Turns turns = of(name);
    synchronized (turns) {
      if (turns.holder != null && turns.holder.group.equals(group)) {
        turns.holder = null;
        turns.notifyAll();
      }
    }
  }

  /** The group of the batch that a query waits for; its own if it does not wait. */
  public static String ahead(String name, String group) {
    Turns turns = of(name);
    synchronized (turns) {
      boolean waits = turns.line.stream().anyMatch(one -> one.group.equals(group));
      return waits && turns.holder != null ? turns.holder.group : group;
    }
  }
}
