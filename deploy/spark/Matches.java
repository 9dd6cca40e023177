package headwater.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.MapFunction;
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
 * Events of one key that belong together within a time: followed by others (a join, a sequence), by none (absence), or so many
 * of them (a threshold).
 *
 * <p>What a document says is a function of the events that count, whatever the order in which they came; which events count is
 * decided by the clocks that they bring along, as in {@link Windows}.
 */
public final class Matches {
  private static final int FIRST = 0;
  private static final int THEN = 1;

  /**
   * Where time alone makes something true, Spark's watermark runs ahead of the events' clocks while a stream stands still
   * (spark/events/ticks.py), and what may still count is kept for so long more. As for a partition that stands still
   * (spark/events/clocks.py): ten minutes, in microseconds.
   */
  private static final long GIVEN_UP = 600_000_000L;

  private Matches() {}

  /** What a view's matches are; times in microseconds. */
  public static final class Plan implements Serializable {
    final long within;
    final long delay;
    final long correct;
    final String keep;
    final int count;

    Plan(List<? extends Number> times, String keep, int count) {
      this.within = times.get(0).longValue();
      this.delay = times.get(1).longValue();
      this.correct = times.get(2).longValue();
      this.keep = keep;
      this.count = count;
    }

    boolean byTime() {
      return keep.equals("alone");
    }

    /** For how long after it a first event is kept, its time within included or not. */
    long kept() {
      return delay + correct + (byTime() ? GIVEN_UP : 0);
    }

    /** When an event that happened then may be forgotten; somewhat later, so that one timer serves those of some time. */
    long over(long at) {
      return Timers.grain(at + within + kept(), within + kept());
    }
  }

  /**
   * A plan.
   *
   * @param times within, delay, and for how long after it late events are still counted (0: not at all).
   * @param keep all, followed or alone.
   * @param count of how many an event must be the last; 0 with followers.
   */
  public static Plan plan(List<? extends Number> times, String keep, int count) {
    return new Plan(times, keep, count);
  }

  /**
   * Matches.
   *
   * @param events as {@code Windows.window} has them; the computed struct is {@code first, key, said} of what an event is as a
   *     first one, and the same of what it is as a following one.
   * @return for each first event whose document has changed its own columns under a new version, {@code failed}, {@code gone}
   *     and {@code value}; besides, events that could not be counted.
   */
  public static Dataset<Row> match(Dataset<Row> events, Plan plan) {
    StructType said = Timed.computed(events.schema());
    StructType first = (StructType) said.apply(2).dataType();
    StructType then = (StructType) said.apply(5).dataType();
    StructType both = new StructType().add("first", first).add("then", then);
    StructType follower = new StructType().add("at", DataTypes.LongType).add("said", then);
    StructType value =
        new StructType()
            .add("key", DataTypes.StringType)
            .add("at", DataTypes.LongType)
            .add("since", DataTypes.LongType)
            .add("count", DataTypes.LongType)
            .add("late", DataTypes.LongType)
            .add("first", first)
            .add("then", DataTypes.createArrayType(follower));
    MapFunction<Row, String> keyed = row -> row.getString(Timed.KEY);
    return Timed.clocked(events)
        .flatMap(new Placing(plan), Encoders.row(Timed.placed(events.schema(), both)))
        .groupByKey(keyed, Encoders.STRING())
        .transformWithState(
            new Keeper(plan, first, then),
            TimeMode.EventTime(),
            OutputMode.Update(),
            Encoders.row(Timed.out(events.schema(), value)));
  }

  /** What an event is: a first one, one that follows, or both. */
  private static final class Placing implements FlatMapFunction<Row, Row> {
    private final Plan plan;

    Placing(Plan plan) {
      this.plan = plan;
    }

    @Override
    public Iterator<Row> call(Row row) {
      List<Row> apart = Timed.apart(row);
      if (apart != null) {
        return apart.iterator();
      }
      Row value = row.getStruct(Timed.EVENT).getStruct(0);
      long at = row.getLong(Timed.AT);
      long before = Timed.watermark(row, plan.delay);
      boolean late = at < before;
      List<Row> found = new ArrayList<>();
      for (int kind = FIRST; kind <= THEN; kind++) {
        if (!value.getBoolean(3 * kind) || value.isNullAt(3 * kind + 1)) {
          continue;
        }
        if (late && at < before - plan.correct) {
          return List.of(Timed.late(row)).iterator();
        }
        Row[] said = new Row[2];
        said[kind] = value.getStruct(3 * kind + 2);
        String key = "k" + value.getString(3 * kind + 1);
        found.add(Timed.placed(row, key, at, at, late, kind, RowFactory.create((Object[]) said)));
      }
      return found.iterator();
    }
  }

  /** What happens to one key in one batch. */
  private static final class Keeper extends StatefulProcessor<String, Row, Row> {
    private final Plan plan;
    private final StructType first;
    private final StructType then;
    private transient ValueState<byte[]> state;
    private transient Happenings.Form form;

    Keeper(Plan plan, StructType first, StructType then) {
      this.plan = plan;
      this.first = first;
      this.then = then;
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
      state = getHandle().getValueState("events", Encoders.BINARY(), TTLConfig.NONE());
      form = new Happenings.Form(first, then);
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
      boolean known = state.exists();
      Happenings held = known ? form.read(state.get()) : new Happenings();
      long safe = Timed.forgotten(timers, plan.kept());
      long newest = -1;
      Timers set = new Timers(getHandle(), false);
      while (rows.hasNext()) {
        Row row = rows.next();
        if (row.getLong(Timed.P_START) < safe || held.full()) {
          String why = held.full() ? "too many events of one key at once" : Timed.LATE + "its time is over, and was given up";
          out.add(Timed.told(row, row.getLong(Timed.P_VERSION), why));
          continue;
        }
        newest = Math.max(newest, row.getLong(Timed.P_VERSION));
        Happenings.One one = held.add(row);
        long over = plan.over(one.at);
        // An earlier one, too: after an event that is dated far ahead the others would be kept until then.
        if (over != held.armed) {
          held.armed = over;
          set.set(over);
        }
        if (plan.byTime() && one.kind == FIRST) {
          set.set(one.at + plan.within + plan.delay);
        }
      }
      if (!held.isEmpty()) {
        tell(key.substring(1), held, newest, Timed.forgotten(timers, plan.delay), out);
        state.update(form.write(held));
      } else if (known) {
        state.clear(); // of none that counts, which an earlier Headwater has left: no timer would take it away
      }
      return CollectionConverters.asScala(out.iterator());
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(String key, TimerValues timers, ExpiredTimerInfo info) {
      List<Row> out = new ArrayList<>();
      if (state.exists()) {
        Happenings held = form.read(state.get());
        tell(key.substring(1), held, -1, Timed.forgotten(timers, plan.delay), out);
        held.forget(Timed.forgotten(timers, plan.kept()), plan.within);
        if (held.isEmpty()) {
          state.clear();
        } else {
          state.update(form.write(held));
        }
      }
      return CollectionConverters.asScala(out.iterator());
    }

    /** Documents of first events of which something else is true than was told. */
    private void tell(String key, Happenings held, long newest, long closed, List<Row> out) {
      for (Happenings.One one : held.firsts()) {
        if (plan.count > 0 && one.settled) {
          continue;
        }
        Happenings.Company company = plan.count > 0 ? held.before(one, plan.within) : held.after(one, plan.within);
        boolean over = one.at + plan.within <= closed;
        boolean shown;
        if (plan.count > 0) {
          shown = company.count >= plan.count;
        } else if (plan.byTime()) {
          shown = company.count == 0 && over;
        } else {
          shown = company.count > 0 || plan.keep.equals("all");
        }
        long now = shown ? company.count : Happenings.UNTOLD;
        if (now == one.told) {
          continue;
        }
        one.version = Math.max(one.version + 1, newest);
        one.told = now;
        Row value =
            RowFactory.create(key, one.at, company.since, company.count, company.late, one.said, company.list.toArray(Row[]::new));
        out.add(one.told(!shown, value));
      }
    }
  }
}
