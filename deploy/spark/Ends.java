package headwater.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Where the topics that resting queries read end: one look for all of them, again and again while any query rests.
 *
 * <p>A hint and no more: a query that was not woken looks for itself after {@link #LONGEST_MS}. Who has rested for long
 * waits at the {@link Tail}, which costs nobody anything.
 */
final class Ends {
  /** How long a query rests at the most; what it costs when a hint is lost. */
  private static final long LONGEST_MS = 1_000;

  /** Between two looks: half of it is added to the way of a commit that meets a resting pipeline. */
  private static final long PAUSE_MS = 8;

  /** A look may not take more than a fifth of the time: thousands of partitions are looked at less often. */
  private static final long PAUSE_FOR_EACH = 4;

  private static final long LONGEST_PAUSE_MS = 100;

  /** A broker that does not answer is the queries' own trouble, which they meet when they look for themselves. */
  private static final long ANSWER_MS = 5_000;

  private static final Map<Map<String, Object>, Ends> SHARED = new ConcurrentHashMap<>();

  private final Map<String, Object> client;
  private final Set<Resting> resting = new HashSet<>();
  private boolean begun;

  private Ends(Map<String, Object> client) {
    this.client = client;
  }

  /** That of all queries of this process that read with the same client settings. */
  static Ends of(CaseInsensitiveStringMap options) {
    return SHARED.computeIfAbsent(Map.copyOf(client(options)), Ends::new);
  }

  /** The settings of Kafka's client among a source's options. */
  static Map<String, Object> client(CaseInsensitiveStringMap options) {
    Map<String, Object> client = new HashMap<>();
    options
        .asCaseSensitiveMap()
        .forEach(
            (name, value) -> {
              if (name.toLowerCase(Locale.ROOT).startsWith("kafka.")) {
                client.put(name.substring("kafka.".length()), value);
              }
            });
    return client;
  }

  private static final class Resting {
    final Map<TopicPartition, Long> at;
    Map<TopicPartition, Long> seen;

    Resting(Map<TopicPartition, Long> at) {
      this.at = at;
    }
  }

  /**
   * Rests until one of these partitions ends elsewhere, or for a while; ends at once when the thread is interrupted.
   *
   * @return where they ended when that was seen; null if nothing was.
   */
  Map<TopicPartition, Long> awaitOthers(Map<TopicPartition, Long> at) {
    Resting mine = new Resting(at);
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONGEST_MS);
    synchronized (this) {
      if (!begun) {
        begun = true;
        Thread thread = new Thread(this::look, "headwater-log-ends");
        thread.setDaemon(true);
        thread.start();
      }
      resting.add(mine);
      notifyAll();
      try {
        while (resting.contains(mine)) {
          long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
          if (left <= 0) {
            return null;
          }
          wait(left);
        }
        return mine.seen;
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt(); // the query is being stopped, and looks at this itself
        return null;
      } finally {
        resting.remove(mine);
      }
    }
  }

  private void look() {
    Map<String, Object> settings = new HashMap<>(client);
    settings.keySet().removeIf(name -> name.startsWith("fetch."));
    try (Admin admin = Admin.create(settings)) {
      while (true) {
        long began = System.nanoTime();
        List<Resting> asking = asking();
        boolean answered = wake(asking, admin);
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        Thread.sleep(answered ? Math.min(LONGEST_PAUSE_MS, Math.max(PAUSE_MS, took * PAUSE_FOR_EACH)) : LONGEST_MS);
      }
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    } finally {
      synchronized (this) {
        begun = false; // the next one who rests begins anew
      }
    }
  }

  private synchronized List<Resting> asking() throws InterruptedException {
    while (resting.isEmpty()) {
      wait();
    }
    return new ArrayList<>(resting);
  }

  private boolean wake(List<Resting> asking, Admin admin) throws InterruptedException {
    Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
    asking.forEach(one -> one.at.keySet().forEach(partition -> wanted.put(partition, OffsetSpec.latest())));
    Map<TopicPartition, ListOffsetsResultInfo> ends;
    try {
      ListOffsetsOptions committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED).timeoutMs((int) ANSWER_MS);
      ends = admin.listOffsets(wanted, committed).all().get(ANSWER_MS, TimeUnit.MILLISECONDS);
    } catch (ExecutionException | TimeoutException unanswered) {
      return false; // a topic that is gone, a broker that is away: those who rest look for themselves soon
    }
    synchronized (this) {
      for (Resting one : asking) {
        Map<TopicPartition, Long> seen = new HashMap<>();
        one.at.keySet().forEach(partition -> seen.put(partition, ends.get(partition).offset()));
        if (!seen.equals(one.at)) {
          one.seen = seen;
          resting.remove(one);
        }
      }
      notifyAll();
    }
    return true;
  }
}
