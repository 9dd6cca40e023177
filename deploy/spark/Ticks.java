package headwater.spark;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Moments through which a query has read its log, as a source of its own: a row a moment, in the columns of a record of the
 * log, without a topic and with the moment (microseconds since 1970) for its offset.
 *
 * <p>Who knows that the moment has passed says so ({@link #tell}); spark/events/ticks.py does. A batch that is repeated has the same
 * moment again, for it is in the log of offsets.
 */
public final class Ticks implements TableProvider {
  /** An option: whose moments. */
  private static final String NAME = "headwater.ticks";

  private static final StructType RECORD =
      new StructType()
          .add("key", DataTypes.BinaryType)
          .add("value", DataTypes.BinaryType)
          .add("topic", DataTypes.StringType)
          .add("partition", DataTypes.IntegerType)
          .add("offset", DataTypes.LongType);

  private static final Map<String, AtomicLong> TOLD = new ConcurrentHashMap<>();

  /**
   * A query is about to start: nothing has been said to it yet. A name outlives a query, and the log that an earlier one of
   * this name has read (a view that was dropped and made again) says nothing of this one's.
   *
   * @param name whose log.
   */
  public static void begin(String name) {
    of(name).set(0);
  }

  /**
   * The log has been read through this moment.
   *
   * @param name whose log.
   * @param micros the moment; an earlier one than before changes nothing.
   */
  public static void tell(String name, long micros) {
    of(name).accumulateAndGet(micros, Math::max);
  }

  private static AtomicLong of(String name) {
    return TOLD.computeIfAbsent(name, unknown -> new AtomicLong());
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return RECORD;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Moments();
  }

  private record Moments() implements SupportsRead {
    @Override
    public String name() {
      return "ticks";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return RECORD;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new MomentsScan(options.get(NAME));
    }
  }

  private record MomentsScan(String name) implements Scan {
    @Override
    public StructType readSchema() {
      return RECORD;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new Stream(of(name));
    }
  }

  private static final class Moment extends Offset {
    final long micros;

    Moment(long micros) {
      this.micros = micros;
    }

    @Override
    public String json() {
      return Long.toString(micros);
    }
  }

  private record Stream(AtomicLong told) implements MicroBatchStream, SupportsAdmissionControl {
    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      return new Moment(Math.max(((Moment) start).micros, told.get())); // after a start nobody has said anything yet
    }

    @Override
    public Offset latestOffset() {
      throw new UnsupportedOperationException("asked with the place before");
    }

    @Override
    public Offset initialOffset() {
      return new Moment(0);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return new Moment(Long.parseLong(json));
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      long micros = ((Moment) end).micros;
      return micros > ((Moment) start).micros ? new InputPartition[] {new One(micros)} : new InputPartition[0];
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Factory();
    }

    @Override
    public void commit(Offset end) {
      // nothing is kept
    }

    @Override
    public void stop() {
      // nor open
    }
  }

  private record One(long micros) implements InputPartition {}

  private static final class Factory implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new Reader(((One) partition).micros);
    }
  }

  private static final class Reader implements PartitionReader<InternalRow> {
    private final long micros;
    private boolean read;

    Reader(long micros) {
      this.micros = micros;
    }

    @Override
    public boolean next() {
      boolean there = !read;
      read = true;
      return there;
    }

    @Override
    public InternalRow get() {
      return new GenericInternalRow(new Object[] {null, null, UTF8String.fromString(""), 0, micros});
    }

    @Override
    public void close() {
      // nothing is open
    }
  }
}
