package headwater.spark;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The current state of each aggregate, folded from its events: Spark's own state by key, and one Spark SQL expression.
 *
 * <p>Spark has no aggregate function whose order is the log's. {@code flatMapGroupsWithState} hands over the events of a
 * key in a batch, and keeps what was made of those before; offsets and state are committed together, so each event counts
 * once whatever is killed.
 */
public final class Folding {
  /** An entry's own columns (spark/reading/entries.py), as they come and as they go. */
  private static final String[] OWN = {"view", "id", "version", "document", "topic", "partition", "offset", "ts_ms"};

  private static final int VIEW = 0;
  private static final int ID = 1;
  private static final int VERSION = 2;
  private static final int OFFSET = 6;

  private Folding() {}

  /**
   * Fold.
   *
   * @param events rows of an entry's own columns, {@code again} (an incremental snapshot has read the event once more) and
   *     {@code event}; what has no view is a tally, and goes through as it is.
   * @param frame an empty frame whose only column is an expression over {@code held} and {@code events}: the state.
   * @return for each aggregate that has had events its last one's columns under the newest version, {@code failed} and
   *     {@code state}.
   */
  public static Dataset<Row> fold(Dataset<Row> events, Dataset<Row> frame) {
    Step step = Step.of(frame);
    StructType state = step.type();
    StructType kept =
        new StructType().add("version", DataTypes.LongType).add("failed", DataTypes.StringType).add("state", state);
    StructType out = new StructType();
    for (String name : OWN) {
      out = out.add(events.schema().apply(name));
    }
    out = out.add("failed", DataTypes.StringType).add("state", state);
    MapFunction<Row, String> keyed = row -> row.getString(VIEW).isEmpty() ? "" : "k" + row.getString(ID);
    return events
        .groupByKey(keyed, Encoders.STRING())
        .flatMapGroupsWithState(
            new Folder(step), OutputMode.Update(), Encoders.row(kept), Encoders.row(out), GroupStateTimeout.NoTimeout());
  }

  /** That a step's own texts are held against UTF-8; an older jar dies of that function, and lacks this. */
  public static boolean texts() {
    return true;
  }

  /** What happens to one key in one batch. */
  private static final class Folder implements FlatMapGroupsWithStateFunction<String, Row, Row, Row> {
    private static final int AGAIN = OWN.length;
    private static final int EVENT = OWN.length + 1;
    private final Step step;

    Folder(Step step) {
      this.step = step;
    }

    @Override
    public Iterator<Row> call(String key, Iterator<Row> found, GroupState<Row> group) {
      List<Row> rows = new ArrayList<>();
      found.forEachRemaining(rows::add);
      if (key.isEmpty()) {
        return rows.stream().map(row -> told(row, row.get(VERSION), null, null)).iterator();
      }
      // All of an aggregate's events are in one partition, in which their order is that of their commits.
      rows.sort(Comparator.comparingLong(row -> row.getLong(OFFSET)));
      Row before = group.exists() ? group.get() : RowFactory.create(-1L, null, null);
      long newest = before.getLong(0);
      Row last = null;
      List<Row> events = new ArrayList<>();
      for (Row row : rows) {
        // Read again, an event was folded already, or comes in the order of a key and not in that of its happening.
        if (row.getBoolean(AGAIN)) {
          continue;
        }
        newest = Math.max(newest, row.getLong(VERSION));
        events.add(row.getStruct(EVENT));
        last = row;
      }
      if (last == null) {
        return List.<Row>of().iterator();
      }
      String failed = before.getString(1);
      Row after = null;
      if (failed == null) {
        try {
          after = step.apply(before.getStruct(2), events);
        } catch (Exception error) { // Scala's checked ones, too: SparkException says what can't be evaluated
          failed = String.valueOf(error.getMessage()).lines().findFirst().orElse("");
        }
      }
      group.update(RowFactory.create(newest, failed, after));
      return List.of(told(last, newest, failed, after)).iterator();
    }

    private static Row told(Row row, Object version, String failed, Row state) {
      Object[] values = new Object[OWN.length + 2];
      for (int at = 0; at < OWN.length; at++) {
        values[at] = at == VERSION ? version : row.get(at);
      }
      values[OWN.length] = failed;
      values[OWN.length + 1] = state;
      return RowFactory.create(values);
    }
  }
}
