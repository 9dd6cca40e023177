package headwater.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;

/**
 * Few records of many topics in one task.
 *
 * <p>Spark's source makes a task of each partition of each topic that has something to read. A task costs ten
 * milliseconds of a processor before it has read anything: for two records of each of eight tables that is most of the
 * batch (docs/decisions/micro-batches.md). A task reads one partition after the other, each in its order.
 */
final class Together {
  /** As many records are worth a task of their own. */
  private static final long WORTH_A_TASK = 500;

  private Together() {}

  /** The parts of a batch, those with little to read put together. */
  static InputPartition[] of(InputPartition[] parts) {
    if (parts.length < 2 || !Arrays.stream(parts).allMatch(KafkaBatchInputPartition.class::isInstance)) {
      return parts;
    }
    List<InputPartition> found = new ArrayList<>();
    List<InputPartition> group = new ArrayList<>();
    long records = 0;
    for (InputPartition part : parts) {
      long size = ((KafkaBatchInputPartition) part).offsetRange().size();
      if (!group.isEmpty() && records + size > WORTH_A_TASK) {
        found.add(one(group));
        group = new ArrayList<>();
        records = 0;
      }
      group.add(part);
      records += size;
    }
    found.add(one(group));
    return found.toArray(InputPartition[]::new);
  }

  private static InputPartition one(List<InputPartition> group) {
    return group.size() == 1 ? group.get(0) : new Several(group.toArray(InputPartition[]::new));
  }

  private record Several(InputPartition[] parts) implements InputPartition {
    @Override
    public String[] preferredLocations() {
      return parts[0].preferredLocations();
    }
  }

  /** A factory that reads several parts as one too. */
  record Factory(PartitionReaderFactory kafka) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition part) {
      return part instanceof Several several ? new Reader(kafka, several.parts) : kafka.createReader(part);
    }
  }

  private static final class Reader implements PartitionReader<InternalRow> {
    private final PartitionReaderFactory kafka;
    private final InputPartition[] parts;
    private final Map<String, Long> counted = new LinkedHashMap<>();
    private PartitionReader<InternalRow> open;
    private int next;

    Reader(PartitionReaderFactory kafka, InputPartition[] parts) {
      this.kafka = kafka;
      this.parts = parts;
    }

    @Override
    public boolean next() throws IOException {
      while (true) {
        if (open != null && open.next()) {
          return true;
        }
        close();
        if (next == parts.length) {
          return false;
        }
        open = kafka.createReader(parts[next++]);
      }
    }

    @Override
    public InternalRow get() {
      return open.get();
    }

    /** Counters of those that are done, and of the one that is read. */
    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      Map<String, Long> all = new LinkedHashMap<>(counted);
      count(all);
      return all.entrySet().stream().map(Together::metric).toArray(CustomTaskMetric[]::new);
    }

    private void count(Map<String, Long> into) {
      if (open != null) {
        for (CustomTaskMetric one : open.currentMetricsValues()) {
          into.merge(one.name(), one.value(), Long::sum);
        }
      }
    }

    @Override
    public void close() throws IOException {
      if (open != null) {
        count(counted);
        open.close();
        open = null;
      }
    }
  }

  private static CustomTaskMetric metric(Map.Entry<String, Long> counted) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return counted.getKey();
      }

      @Override
      public long value() {
        return counted.getValue();
      }
    };
  }
}
