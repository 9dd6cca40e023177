package headwater.spark;

import java.sql.Date;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

/** Rows of events with their times, as they come to an operator, between its stages, and as they leave it. */
final class Timed {
  /** An entry's own columns (spark/reading/entries.py), as they come and as they go. */
  private static final String[] OWN = {"view", "id", "version", "document", "topic", "partition", "offset", "ts_ms"};

  /** Begins why an event was left out that came too late: people look for it in the dead letters. */
  static final String LATE = "late: ";

  /** Why an event was left out of which no group or value could be had. */
  static final String UNKNOWN = "Spark could not compute what groups or measures this event";

  /** As a {@code Timestamp} says it where the machine's zone is UTC: keys of before stay what they are there. */
  private static final DateTimeFormatter MOMENT =
      new DateTimeFormatterBuilder()
          .appendPattern("uuuu-MM-dd HH:mm:ss")
          .appendFraction(ChronoField.NANO_OF_SECOND, 1, 9, true)
          .toFormatter(Locale.ROOT);

  static final int VIEW = 0;
  static final int VERSION = 2;
  static final int AGAIN = OWN.length;
  static final int AT = OWN.length + 1;
  static final int CLOCK = OWN.length + 2;
  static final int EVENT = OWN.length + 3;
  private static final int SAFE = OWN.length + 4;

  static final int KEY = OWN.length;
  static final int P_VERSION = VERSION;
  static final int P_START = OWN.length + 1;
  static final int P_END = OWN.length + 2;
  static final int P_LATE = OWN.length + 3;
  static final int P_FAILED = OWN.length + 4;
  static final int P_GROUPING = OWN.length + 5;
  static final int P_VALUE = OWN.length + 6;

  private Timed() {}

  /**
   * Events whose {@code safe} moves Spark's watermark. What is made of them must not have that column: Spark finds none of it
   * late then.
   */
  static Dataset<Row> clocked(Dataset<Row> events) {
    return events.withWatermark("safe", "0 seconds");
  }

  /** What Spark has computed of an event: the struct in its struct. */
  static StructType computed(StructType events) {
    return (StructType) ((StructType) events.apply("event").dataType()).apply(0).dataType();
  }

  /** Between the stages. */
  static StructType placed(StructType events, StructType value) {
    return own(events)
        .add("key", DataTypes.StringType)
        .add("start", DataTypes.LongType)
        .add("end", DataTypes.LongType)
        .add("late", DataTypes.BooleanType)
        .add("failed", DataTypes.StringType)
        .add("grouping", DataTypes.IntegerType)
        .add("value", value);
  }

  /** As it leaves. */
  static StructType out(StructType events, StructType value) {
    return own(events).add("failed", DataTypes.StringType).add("gone", DataTypes.BooleanType).add("value", value);
  }

  private static StructType own(StructType events) {
    StructType found = new StructType();
    for (String name : OWN) {
      found = found.add(events.apply(name));
    }
    return found;
  }

  /** Of what a measure gives, by its kind and the type of what it gets. */
  static DataType resultType(String kind, DataType given) {
    if (kind.equals("count") || kind.equals("distinct")) {
      return DataTypes.LongType;
    }
    if (kind.startsWith("quantile")) {
      return DataTypes.DoubleType;
    }
    if (kind.equals("sum:decimal")) {
      return DataTypes.createDecimalType(DecimalType.MAX_PRECISION(), ((DecimalType) given).scale());
    }
    if (kind.startsWith("avg:decimal:")) {
      String[] said = kind.split(":");
      return DataTypes.createDecimalType(Integer.parseInt(said[3]), Integer.parseInt(said[4]));
    }
    return given;
  }

  /** A row that goes through: a tally, or an event that can't be counted. */
  static Row passed(Row row, String failed) {
    Object[] values = owned(row, OWN.length + 7);
    values[KEY] = "";
    values[P_FAILED] = failed;
    return RowFactory.create(values);
  }

  /** What becomes of a row that is no event to count, or of which nothing is known; null of one to be looked at. */
  static List<Row> apart(Row row) {
    if (row.getString(VIEW).isEmpty()) {
      return List.of(passed(row, null));
    }
    if (row.getBoolean(AGAIN)) {
      return List.of();
    }
    return row.isNullAt(EVENT) ? List.of(passed(row, UNKNOWN)) : null;
  }

  /** The moment before which an event is late. */
  static long watermark(Row row, long delay) {
    return row.isNullAt(CLOCK) ? Long.MIN_VALUE : row.getLong(CLOCK) - delay;
  }

  /**
   * A value's text, which no other value has. That of a moment is in UTC: in the machine's own zone two moments share one when
   * clocks are set back, and after a start in another zone a group would be another. A day whose year {@code Date} does not say
   * (it has four digits and no era) is counted from 1970 on; the others keep the keys that they have in states.
   */
  static String text(Object value) {
    if (value instanceof Timestamp moment) {
      return MOMENT.format(LocalDateTime.ofInstant(moment.toInstant(), ZoneOffset.UTC));
    }
    if (value instanceof Date day) {
      int days = DateTimeUtils.fromJavaDate(day);
      int year = LocalDate.ofEpochDay(days).getYear();
      return year < 1 || year > 9999 ? Integer.toString(days) : day.toString();
    }
    return String.valueOf(value);
  }

  /** What Spark's watermark is at the most while this row's batch is at work. */
  static long safe(Row row) {
    Timestamp safe = row.getTimestamp(SAFE);
    return Math.floorDiv(safe.getTime(), 1000L) * 1_000_000 + safe.getNanos() / 1000;
  }

  /** An event that came too late to count. */
  static Row late(Row row) {
    long behind = (row.getLong(CLOCK) - row.getLong(AT)) / 1_000_000;
    return passed(row, LATE + behind + " s behind the newest event before it");
  }

  static Row placed(Row row, String key, long start, long end, boolean late, int grouping, Row value) {
    Object[] values = owned(row, OWN.length + 7);
    values[KEY] = key;
    values[P_START] = start;
    values[P_END] = end;
    values[P_LATE] = late;
    values[P_GROUPING] = grouping;
    values[P_VALUE] = value;
    return RowFactory.create(values);
  }

  /** Out: what could not be counted, or a tally. */
  static Row told(Row row, long version, String failed) {
    return told(row, version, failed, false, null);
  }

  /** Out: a document, or that it is gone. */
  static Row told(Row row, long version, boolean gone, Row value) {
    return told(row, version, null, gone, value);
  }

  private static Row told(Row row, long version, String failed, boolean gone, Row value) {
    Object[] values = owned(row, OWN.length + 3);
    values[VERSION] = version;
    values[OWN.length] = failed;
    values[OWN.length + 1] = gone;
    values[OWN.length + 2] = value;
    return RowFactory.create(values);
  }

  private static Object[] owned(Row row, int width) {
    Object[] values = new Object[width];
    for (int at = 0; at < OWN.length; at++) {
      values[at] = row.get(at);
    }
    return values;
  }

  /** Ends up to here (microseconds) are forgotten: no event that counts can still come, as far as Spark's watermark tells. */
  static long forgotten(TimerValues timers, long kept) {
    long safe = timers.getCurrentWatermarkInMs();
    return safe <= 0 ? Long.MIN_VALUE : safe * 1000 - kept;
  }

  /** When a timer is to ring (milliseconds) for a moment in microseconds: not before it. */
  static long timer(long micros) {
    return Math.floorDiv(micros, 1000L) + 1;
  }
}
