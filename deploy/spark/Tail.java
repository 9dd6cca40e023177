package headwater.spark;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Where a query that has rested for long waits: it asks the broker for what is behind what it has read, and the broker
 * answers when it is there.
 *
 * <p>A consumer of the query's own, used by the query's thread alone. Once it has been woken it is of no use: Kafka's client
 * then asks for more at once, a broker answers one request after the other, and what comes next would wait behind that
 * one. To make another costs 10 ms of a processor, so whoever reads now and then waits at {@link Ends}. What is read
 * here, a batch of records at the most, is thrown away: what there is to read only Spark's source says.
 */
final class Tail {
  /** How long a query waits at the most before it looks for itself; what it costs when it waits for the wrong thing. */
  private static final long LONGEST_MS = 5_000;

  private final Map<String, Object> client;
  private KafkaConsumer<byte[], byte[]> consumer;

  Tail(CaseInsensitiveStringMap options) {
    client = Ends.client(options);
    client.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
    client.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
    client.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, (int) LONGEST_MS);
    client.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 1); // the first batch comes whatever its size
    client.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 1);
    client.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none"); // a log without the place is the source's to tell of
    client.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
    client.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
  }

  /** Waits until there is something at one of these places, or for a while; ends at once when it is interrupted. */
  void await(Map<TopicPartition, Long> at) {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONGEST_MS);
    try {
      follow(at);
      for (long left = LONGEST_MS; left > 0; left = millisUntil(until)) {
        // The end of a transaction moves the place, and is no record.
        if (!consumer.poll(Duration.ofMillis(left)).isEmpty() || !isAt(at)) {
          return;
        }
      }
    } catch (InterruptException stopped) {
      Thread.currentThread().interrupt(); // the query is being stopped, and looks at this itself
    } catch (KafkaException unanswered) {
      // A topic that is gone, a place that the log has no more, a broker that does not let us in: the query's own
      // trouble, which it meets when it looks for itself.
      close();
      sleep(millisUntil(until));
    }
  }

  private void follow(Map<TopicPartition, Long> at) {
    if (consumer != null && consumer.assignment().equals(at.keySet()) && isAt(at)) {
      return; // nothing has come: the broker is still being asked
    }
    close();
    consumer = new KafkaConsumer<>(client);
    consumer.assign(at.keySet());
    at.forEach(consumer::seek);
  }

  private boolean isAt(Map<TopicPartition, Long> at) {
    return at.entrySet().stream().allMatch(one -> consumer.position(one.getKey()) == one.getValue());
  }

  /** Gives back what waiting has taken; it is taken again when it is needed. */
  void close() {
    if (consumer == null) {
      return;
    }
    try {
      consumer.close(Duration.ZERO);
    } catch (KafkaException | ConcurrentModificationException unclosed) {
      // the query is at its end: what is left ends with its process
    }
    consumer = null;
  }

  private static long millisUntil(long moment) {
    return TimeUnit.NANOSECONDS.toMillis(moment - System.nanoTime());
  }

  private static void sleep(long millis) {
    try {
      Thread.sleep(Math.max(0, millis));
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
