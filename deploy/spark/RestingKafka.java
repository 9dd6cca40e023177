package headwater.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's Kafka source, which rests when there is nothing to read.
 *
 * <p>Each query asks Kafka for the ends of its topics a hundred times a second: with thirty queries in a process that
 * was half a core, and Kafka's share besides, for nothing (docs/decisions/micro-batches.md). Here a query that has found
 * nothing waits until {@link Ends}, which asks for all queries at once, has seen something; and one that has waited for
 * long, until the broker says so ({@link Tail}). What there is to read, and up to where, only Spark's own source says.
 */
public final class RestingKafka implements TableProvider {
  private final KafkaSourceProvider kafka = new KafkaSourceProvider();

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Resting(kafka.getTable(schema, partitioning, properties));
  }

  private record Resting(Table kafka) implements SupportsRead {
    @Override
    public String name() {
      return kafka.name();
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return kafka.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new RestingScan(((SupportsRead) kafka).newScanBuilder(options).build(), options);
    }
  }

  private record RestingScan(Scan kafka, CaseInsensitiveStringMap options) implements Scan {
    @Override
    public StructType readSchema() {
      return kafka.readSchema();
    }

    @Override
    public String description() {
      return kafka.description();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      String turns = options.get(TURNS);
      return new Stream(
          kafka.toMicroBatchStream(checkpoint),
          Ends.of(options),
          new Tail(options),
          turns == null ? null : Turns.of(turns));
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return kafka.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return kafka.reportDriverMetrics();
    }
  }

  /** An option: a query whose batches take turns with others of this name plans one when its turn has come. */
  private static final String TURNS = "headwater.turns";

  /** What Spark calls the group of a query's jobs, on the query's own thread. */
  private static final String GROUP = "spark.jobGroup.id";

  /** With so few new records the ends that woke a query are its batch; with more it asks Spark's source. */
  private static final long FEW = 500;

  /** Who has found nothing for so long waits until the broker says that there is something. */
  private static final long QUIET_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final class Stream implements SupportsTriggerAvailableNow, ReportsSourceMetrics, MicroBatchStream {
    private final MicroBatchStream kafka;
    private final Ends ends;
    private final Tail tail;
    private final Turns turns;
    private long found = System.nanoTime();
    private volatile boolean asked;
    private boolean bounded;
    private Map<TopicPartition, Long> woken;

    Stream(MicroBatchStream kafka, Ends ends, Tail tail, Turns turns) {
      this.kafka = kafka;
      this.ends = ends;
      this.tail = tail;
      this.turns = turns;
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      leave();
      Offset hint = hint(start, limit);
      if (hint != null) {
        found = System.nanoTime();
        return hint;
      }
      Offset latest = ((SupportsTriggerAvailableNow) kafka).latestOffset(start, limit);
      asked = true;
      if (latest == null || !latest.equals(start)) {
        found = System.nanoTime();
        if (turns != null && latest != null) {
          if (!turns.take(this, group())) {
            return null; // the query is being stopped; `start` would be an empty first batch
          }
          latest = ((SupportsTriggerAvailableNow) kafka).latestOffset(start, limit); // with what has come meanwhile
        }
      } else {
        // Then this trigger has nothing, and the next one, at once, finds what has come: a batch's own time does not
        // hold the time of rest before it.
        rest(offsets((KafkaSourceOffset) start));
      }
      return latest;
    }

    /**
     * The batch that a look for all queries has found a moment ago, which need not be asked for again: where the topics
     * end, if that is a little further than where this query is. Partitions that are new it does not have; they come with
     * the next look of the source's own, which each rest begins with.
     */
    private Offset hint(Offset start, ReadLimit limit) {
      Map<TopicPartition, Long> ends = woken;
      woken = null;
      if (ends == null || turns != null || bounded) {
        return null;
      }
      long records = 0;
      for (Map.Entry<TopicPartition, Long> at : offsets((KafkaSourceOffset) start).entrySet()) {
        long more = ends.getOrDefault(at.getKey(), -1L) - at.getValue();
        if (more < 0) {
          return null; // a log that is shorter than it was: Spark's source tells of it
        }
        records += more;
      }
      boolean fits = limit instanceof ReadAllAvailable || (limit instanceof ReadMaxRows most && records <= most.maxRows());
      return fits && records > 0 && records <= FEW ? offset(ends) : null;
    }

    private void leave() {
      if (turns != null) {
        turns.leave(this);
      }
    }

    private static String group() {
      String group = SparkContext.getOrCreate().getLocalProperty(GROUP);
      return group == null ? "" : group;
    }

    private void rest(Map<TopicPartition, Long> at) {
      if (System.nanoTime() - found > QUIET_NANOS) {
        tail.await(at);
      } else {
        tail.close();
        woken = ends.awaitOthers(at);
      }
    }

    /** After a batch that is replayed Spark asks a source that has not looked at the log yet, which then fails. */
    @Override
    public Map<String, String> metrics(Optional<Offset> latest) {
      return asked ? ((ReportsSourceMetrics) kafka).metrics(latest) : Map.of();
    }

    @SuppressWarnings({"unchecked", "rawtypes"}) // Scala's longs are objects to Java
    private static Offset offset(Map<TopicPartition, Long> ends) {
      return new KafkaSourceOffset((scala.collection.immutable.Map) Map$.MODULE$.from(CollectionConverters.asScala(ends)));
    }

    private static Map<TopicPartition, Long> offsets(KafkaSourceOffset at) {
      Map<TopicPartition, Long> found = new HashMap<>();
      at.partitionToOffsets().foreachEntry((partition, offset) -> found.put(partition, (Long) offset));
      return found;
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
      return ((SupportsTriggerAvailableNow) kafka).getDefaultReadLimit();
    }

    @Override
    public Offset reportLatestOffset() {
      return ((SupportsTriggerAvailableNow) kafka).reportLatestOffset();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
      bounded = true; // it ends at what there is now
      ((SupportsTriggerAvailableNow) kafka).prepareForTriggerAvailableNow();
    }

    @Override
    public Offset latestOffset() {
      return kafka.latestOffset();
    }

    @Override
    public Offset initialOffset() {
      return kafka.initialOffset();
    }

    @Override
    public Offset deserializeOffset(String json) {
      return kafka.deserializeOffset(json);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return Together.of(kafka.planInputPartitions(start, end));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Together.Factory(kafka.createReaderFactory());
    }

    @Override
    public void commit(Offset end) {
      kafka.commit(end);
    }

    @Override
    public void stop() {
      leave();
      tail.close();
      kafka.stop();
    }

    @Override
    public String toString() {
      return kafka.toString();
    }
  }
}
