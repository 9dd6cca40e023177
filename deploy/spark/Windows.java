package headwater.spark;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Windows over events, in event time: counts, sums and sketches by group.
 *
 * <p>Whether an event is late is decided by the clock that it brings along (of its partition of the log, before it), and so is
 * the same however batches are cut. Spark's own watermark only tells when a window may be forgotten: it is made of a column that
 * the operator does not see, so Spark drops nothing (docs/decisions/windows.md).
 */
public final class Windows {
  private Windows() {}

  /** What a view's windows are; times in microseconds. */
  public static final class Plan implements Serializable {
    final long size;
    final long slide;
    final long gap;
    final long delay;
    final long correct;
    final int by;
    final String[] kinds;
    final int[][] groupings;

    /**
     * As the driver says it.
     *
     * @param times size, slide, gap (of sessions, else 0), delay, and for how long after it late events are still counted (0:
     *     not at all).
     * @param by how many values make a group.
     * @param kinds of the measures.
     * @param groupings of each the indexes of its values.
     */
    Plan(List<? extends Number> times, int by, List<String> kinds, List<? extends List<? extends Number>> groupings) {
      this.size = times.get(0).longValue();
      this.slide = times.get(1).longValue();
      this.gap = times.get(2).longValue();
      this.delay = times.get(3).longValue();
      this.correct = times.get(4).longValue();
      this.by = by;
      this.kinds = kinds.toArray(String[]::new);
      this.groupings = new int[groupings.size()][];
      for (int at = 0; at < this.groupings.length; at++) {
        this.groupings[at] = groupings.get(at).stream().mapToInt(Number::intValue).toArray();
      }
    }

    /** How long after its end a window is kept: until no event can be counted in it. */
    long kept() {
      return delay + correct + gap;
    }

    /**
     * When a window that ends then may be forgotten. A session's end goes on with its events, so somewhat later: a timer for each
     * end would be one for each batch. A fixed window has one end, and one timer.
     */
    long over(long end) {
      return gap == 0 ? end + kept() : Timers.grain(end + kept(), kept());
    }
  }

  /** A plan; arguments as its constructor has them. */
  public static Plan plan(
      List<? extends Number> times, int by, List<String> kinds, List<? extends List<? extends Number>> groupings) {
    return new Plan(times, by, kinds, groupings);
  }

  /** That averages of decimals are measured; an older jar does not, and lacks this. */
  public static boolean averages() {
    return true;
  }

  /**
   * Windows.
   *
   * @param events rows of an entry's own columns, {@code again}, {@code at}, {@code clock}, {@code event} and {@code safe}
   *     (spark/events/windows.py); what has no view is a tally, and goes through as it is. An event is a struct of one field, which is a
   *     struct: {@code keep}, the group's values, the measures'; null if Spark could not compute it.
   * @return for each window that has changed the last event's own columns under its new version, {@code failed}, {@code gone}
   *     and {@code value}; besides, events that could not be counted.
   */
  public static Dataset<Row> window(Dataset<Row> events, Plan plan) {
    StructType said = Timed.computed(events.schema());
    StructType part = new StructType();
    for (int at = 0; at < plan.by; at++) {
      part = part.add(said.apply(1 + at));
    }
    part = part.add("late", DataTypes.LongType).add("measures", DataTypes.BinaryType);
    StructType placed = Timed.placed(events.schema(), part);
    StructType value = new StructType().add("grouping", DataTypes.IntegerType);
    for (int at = 0; at < plan.by; at++) {
      value = value.add(said.apply(1 + at).name(), said.apply(1 + at).dataType());
    }
    value = value.add("start", DataTypes.LongType).add("end", DataTypes.LongType).add("late", DataTypes.LongType);
    for (int at = 0; at < plan.kinds.length; at++) {
      value = value.add("m" + at, Timed.resultType(plan.kinds[at], said.apply(1 + plan.by + at).dataType()));
    }
    MapFunction<Row, String> keyed = row -> row.getString(Timed.KEY);
    return Timed.clocked(events)
        .mapPartitions(new Placing(plan), Encoders.row(placed))
        .groupByKey(keyed, Encoders.STRING())
        .transformWithState(
            new Keeper(plan), TimeMode.EventTime(), OutputMode.Update(), Encoders.row(Timed.out(events.schema(), value)));
  }

  /**
   * Events' windows in each grouping, or why they are in none.
   *
   * <p>Events of one task that count in the same window go on as one row: what they measure together. Not so those of sessions,
   * which have no window of their own yet, nor those that may come to a window that is given up: each of them is a dead letter.
   */
  private static final class Placing implements MapPartitionsFunction<Row, Row> {
    /** Windows that a task holds at once. */
    private static final int MOST = 10_000;

    private final Plan plan;

    Placing(Plan plan) {
      this.plan = plan;
    }

    @Override
    public Iterator<Row> call(Iterator<Row> rows) {
      Gathered gathered = new Gathered();
      return new Iterator<>() {
        private final ArrayDeque<Row> ready = new ArrayDeque<>();

        @Override
        public boolean hasNext() {
          while (ready.isEmpty() && rows.hasNext()) {
            place(rows.next(), gathered, ready);
            if (gathered.size() >= MOST) {
              gathered.flush(ready);
            }
          }
          if (ready.isEmpty()) {
            gathered.flush(ready);
          }
          return !ready.isEmpty();
        }

        @Override
        public Row next() {
          return ready.remove();
        }
      };
    }

    private void place(Row row, Gathered gathered, ArrayDeque<Row> ready) {
      List<Row> apart = Timed.apart(row);
      if (apart != null) {
        ready.addAll(apart);
        return;
      }
      Row value = row.getStruct(Timed.EVENT).getStruct(0);
      if (!value.getBoolean(0)) {
        return;
      }
      long at = row.getLong(Timed.AT);
      boolean lost = false;
      if (plan.gap > 0) {
        lost = !place(row, value, at, at + plan.gap, gathered, ready);
      } else {
        long start = Math.floorDiv(at, plan.slide) * plan.slide;
        for (; start > at - plan.size; start -= plan.slide) {
          lost |= !place(row, value, start, start + plan.size, gathered, ready);
        }
      }
      if (lost) {
        ready.add(Timed.late(row));
      }
    }

    /** Whether an event counts in a window; then it is added in each grouping. */
    private boolean place(Row row, Row value, long start, long end, Gathered gathered, ArrayDeque<Row> ready) {
      long before = Timed.watermark(row, plan.delay);
      boolean late = end <= before;
      if (late && end <= before - plan.correct) {
        return false;
      }
      boolean alone = plan.gap > 0 || end <= Timed.safe(row) - plan.delay - plan.correct;
      for (int index = 0; index < plan.groupings.length; index++) {
        String key = key(value, index, start);
        if (alone) {
          Part part = new Part(row, key, start, end, index, value);
          part.add(row, value, late);
          ready.add(part.row());
        } else {
          gathered.at(row, key, start, end, index, value).add(row, value, late);
        }
      }
      return true;
    }

    private String key(Row value, int index, long start) {
      StringBuilder key = new StringBuilder().append(index);
      if (plan.gap == 0) {
        key.append(' ').append(start);
      }
      for (int one : plan.groupings[index]) {
        String text = Timed.text(value.get(1 + one));
        key.append(' ').append(value.isNullAt(1 + one) ? -1 : text.length()).append(':').append(text);
      }
      return key.toString();
    }

    /** What a task has of each window so far. */
    private final class Gathered {
      private final Map<String, Part> parts = new HashMap<>();

      int size() {
        return parts.size();
      }

      Part at(Row row, String key, long start, long end, int grouping, Row value) {
        return parts.computeIfAbsent(key, unknown -> new Part(row, key, start, end, grouping, value));
      }

      void flush(ArrayDeque<Row> ready) {
        parts.values().forEach(part -> ready.add(part.row()));
        parts.clear();
      }
    }

    /** A window's part in one task: what its events have measured. */
    private final class Part {
      private final String key;
      private final long start;
      private final long end;
      private final int grouping;
      private final Row value;
      private final Measure[] measures = Measure.all(plan.kinds);
      private Row newest;
      private long late;

      Part(Row row, String key, long start, long end, int grouping, Row value) {
        this.newest = row;
        this.key = key;
        this.start = start;
        this.end = end;
        this.grouping = grouping;
        this.value = value;
      }

      void add(Row row, Row value, boolean late) {
        this.late += late ? 1 : 0;
        if (row.getLong(Timed.VERSION) >= newest.getLong(Timed.VERSION)) {
          newest = row;
        }
        for (int at = 0; at < measures.length; at++) {
          if (!value.isNullAt(1 + plan.by + at)) {
            measures[at].add(value.get(1 + plan.by + at));
          }
        }
      }

      Row row() {
        Object[] made = new Object[plan.by + 2];
        for (int at = 0; at < plan.by; at++) {
          made[at] = value.get(1 + at);
        }
        made[plan.by] = late;
        made[plan.by + 1] = Measure.write(measures);
        return Timed.placed(newest, key, start, end, late > 0, grouping, RowFactory.create(made));
      }
    }
  }

  /** What happens to one group (of fixed windows: to one window of it) in one batch. */
  private static final class Keeper extends StatefulProcessor<String, Row, Row> {
    private final Plan plan;
    private transient ValueState<byte[]> state;

    Keeper(Plan plan) {
      this.plan = plan;
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
      state = getHandle().getValueState("panes", Encoders.BINARY(), TTLConfig.NONE());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        String key, scala.collection.Iterator<Row> found, TimerValues timers) {
      Iterator<Row> rows = CollectionConverters.asJava(found);
      List<Row> out = new ArrayList<>();
      if (key.isEmpty()) {
        rows.forEachRemaining(row -> out.add(Timed.told(row, row.getLong(Timed.P_VERSION), row.getString(Timed.P_FAILED))));
        return CollectionConverters.asScala(out.iterator());
      }
      Panes panes = state.exists() ? Panes.read(state.get(), plan.kinds) : new Panes(plan.kinds);
      long safe = Timed.forgotten(timers, plan.delay + plan.correct);
      Timers set = new Timers(getHandle(), plan.gap == 0); // a fixed window sets one, when it begins
      Row last = null;
      while (rows.hasNext()) {
        Row row = rows.next();
        if (row.getLong(Timed.P_END) <= safe) {
          out.add(Timed.told(row, row.getLong(Timed.P_VERSION), Timed.LATE + "its window is closed, and was given up"));
          continue;
        }
        add(panes, row);
        last = row;
      }
      if (last != null) {
        for (Panes.Gone gone : panes.gone) {
          out.add(Timed.told(last, gone.version, true, told(last, gone.start, gone.end, 0, null)));
        }
        for (Panes.Pane pane : panes.open) {
          if (pane.changed) {
            pane.settle();
            out.add(Timed.told(last, pane.version, false, told(last, pane.start, pane.end, pane.late, pane.measures)));
          }
          long over = plan.over(pane.end);
          if (pane.moved && over != panes.armed) {
            panes.armed = over;
            set.set(over);
          }
        }
        state.update(panes.write());
      }
      return CollectionConverters.asScala(out.iterator());
    }

    private void add(Panes panes, Row row) {
      Panes.Pane pane = panes.at(row.getLong(Timed.P_START), row.getLong(Timed.P_END));
      pane.newest = Math.max(pane.newest, row.getLong(Timed.P_VERSION));
      Row part = row.getStruct(Timed.P_VALUE);
      pane.late += part.getLong(plan.by);
      Measure[] more = Measure.read((byte[]) part.get(plan.by + 1), plan.kinds);
      for (int at = 0; at < more.length; at++) {
        pane.measures[at].merge(more[at]);
      }
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(String key, TimerValues timers, ExpiredTimerInfo info) {
      if (state.exists()) {
        Panes panes = Panes.read(state.get(), plan.kinds);
        long safe = Timed.forgotten(timers, plan.kept());
        if (panes.open.removeIf(pane -> pane.end <= safe)) {
          if (panes.open.isEmpty()) {
            state.clear();
          } else {
            state.update(panes.write());
          }
        }
      }
      return CollectionConverters.asScala(List.<Row>of().iterator());
    }

    private Row told(Row row, long start, long end, long late, Measure[] measures) {
      Row value = row.getStruct(Timed.P_VALUE);
      int grouping = row.getInt(Timed.P_GROUPING);
      Object[] values = new Object[4 + plan.by + plan.kinds.length];
      values[0] = grouping;
      for (int one : plan.groupings[grouping]) {
        values[1 + one] = value.get(one);
      }
      values[1 + plan.by] = start;
      values[2 + plan.by] = end;
      values[3 + plan.by] = late;
      for (int at = 0; measures != null && at < measures.length; at++) {
        values[4 + plan.by + at] = measures[at].result();
      }
      return RowFactory.create(values);
    }
  }
}
