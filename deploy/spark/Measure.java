package headwater.spark;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;
import org.apache.datasketches.kll.KllDoublesSketch;
import org.apache.datasketches.memory.Memory;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What a window keeps of one value of its events: exact, or a sketch of bounded size (Apache DataSketches, as in Spark's own
 * {@code hll_sketch_agg} and {@code kll_sketch_agg}).
 *
 * <p>Kinds: {@code count}, {@code sum:T}, {@code min:T}, {@code max:T}, {@code distinct}, {@code quantile:p}; T is long, double,
 * decimal or string; and {@code avg:decimal:D:P:S}, of a sum of at most D digits, as a decimal(P, S). A null counts nowhere, as
 * in SQL.
 */
abstract class Measure {
  /** Of the distinct values' sketch: 4,096 registers, a standard error of 1.6 % (Spark's own default). */
  private static final int LG_K = 12;

  static Measure of(String kind) {
    String[] said = kind.split(":", 2);
    switch (said[0]) {
      case "count":
        return new Count();
      case "sum":
        return said[1].equals("long") ? new LongSum() : said[1].equals("double") ? new DoubleSum() : new DecimalSum();
      case "avg":
        return new DecimalAverage(said[1].split(":"));
      case "min":
        return new Extreme(said[1], -1);
      case "max":
        return new Extreme(said[1], 1);
      case "distinct":
        return new Distinct();
      default:
        return new Quantile(Double.parseDouble(said[1]));
    }
  }

  /** One of each kind. */
  static Measure[] all(String[] kinds) {
    Measure[] measures = new Measure[kinds.length];
    for (int at = 0; at < kinds.length; at++) {
      measures[at] = of(kinds[at]);
    }
    return measures;
  }

  /** What some have measured, as bytes between two stages of one batch. */
  static byte[] write(Measure[] measures) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      for (Measure measure : measures) {
        measure.write(out);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes.toByteArray();
  }

  /** The same again. */
  static Measure[] read(byte[] bytes, String[] kinds) {
    Measure[] measures = all(kinds);
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
      for (Measure measure : measures) {
        measure.read(in);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return measures;
  }

  /** One event's value, which is not null. */
  abstract void add(Object value);

  /** What another window has seen as well: two sessions became one. */
  abstract void merge(Measure other);

  /** The value so far, or null. */
  abstract Object result();

  abstract void write(DataOutputStream out) throws IOException;

  abstract void read(DataInputStream in) throws IOException;

  private static byte[] bytes(DataInputStream in) throws IOException {
    byte[] found = new byte[in.readInt()];
    in.readFully(found);
    return found;
  }

  private static void bytes(DataOutputStream out, byte[] given) throws IOException {
    out.writeInt(given.length);
    out.write(given);
  }

  private static final class Count extends Measure {
    private long count;

    @Override
    void add(Object value) {
      count++;
    }

    @Override
    void merge(Measure other) {
      count += ((Count) other).count;
    }

    @Override
    Object result() {
      return count;
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeLong(count);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      count = in.readLong();
    }
  }

  private static final class DoubleSum extends Measure {
    private double sum;
    private boolean any;

    @Override
    void add(Object value) {
      any = true;
      sum += (Double) value;
    }

    @Override
    void merge(Measure other) {
      DoubleSum more = (DoubleSum) other;
      any |= more.any;
      sum += more.sum;
    }

    @Override
    Object result() {
      return any ? sum : null;
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeDouble(sum);
      out.writeBoolean(any);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sum = in.readDouble();
      any = in.readBoolean();
    }
  }

  private static final class DecimalSum extends Measure {
    private static final int DIGITS = 38;
    private BigDecimal sum;

    @Override
    void add(Object value) {
      sum = sum == null ? (BigDecimal) value : sum.add((BigDecimal) value);
    }

    @Override
    void merge(Measure other) {
      if (((DecimalSum) other).sum != null) {
        add(((DecimalSum) other).sum);
      }
    }

    @Override
    Object result() {
      return sum == null || sum.precision() > DIGITS ? null : sum;
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeBoolean(sum != null);
      if (sum != null) {
        out.writeInt(sum.scale());
        bytes(out, sum.unscaledValue().toByteArray());
      }
    }

    @Override
    void read(DataInputStream in) throws IOException {
      if (in.readBoolean()) {
        int scale = in.readInt();
        sum = new BigDecimal(new BigInteger(bytes(in)), scale);
      }
    }
  }

  /** An average of decimals, divided and rounded once: Spark SQL's {@code /} leaves few digits of wide ones. */
  private static final class DecimalAverage extends Measure {
    private final DecimalSum sum = new DecimalSum();
    private final Count count = new Count();
    private final int digits;
    private final int precision;
    private final int scale;

    DecimalAverage(String[] said) {
      digits = Integer.parseInt(said[1]);
      precision = Integer.parseInt(said[2]);
      scale = Integer.parseInt(said[3]);
    }

    @Override
    void add(Object value) {
      sum.add(value);
      count.add(value);
    }

    @Override
    void merge(Measure other) {
      sum.merge(((DecimalAverage) other).sum);
      count.merge(((DecimalAverage) other).count);
    }

    @Override
    Object result() {
      if (sum.sum == null || sum.sum.precision() > digits) {
        return null;
      }
      BigDecimal found = sum.sum.divide(BigDecimal.valueOf(count.count), scale, RoundingMode.HALF_UP);
      return found.precision() > precision ? null : found;
    }

    /** As a sum and a count write it one after the other: an average was these two before. */
    @Override
    void write(DataOutputStream out) throws IOException {
      sum.write(out);
      count.write(out);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sum.read(in);
      count.read(in);
    }
  }

  private static final class Extreme extends Measure {
    private final String type;
    private final int sign;
    private Object held;

    Extreme(String type, int sign) {
      this.type = type;
      this.sign = sign;
    }

    @Override
    void add(Object value) {
      if (held == null || sign * order(value, held) > 0) {
        held = value;
      }
    }

    /** Texts as Spark SQL orders them, by their bytes: Java's own order is another one beyond U+FFFF. */
    @SuppressWarnings("unchecked")
    private static int order(Object one, Object other) {
      return one instanceof String
          ? UTF8String.fromString((String) one).compareTo(UTF8String.fromString((String) other))
          : ((Comparable<Object>) one).compareTo(other);
    }

    @Override
    void merge(Measure other) {
      if (((Extreme) other).held != null) {
        add(((Extreme) other).held);
      }
    }

    @Override
    Object result() {
      return held;
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeBoolean(held != null);
      if (held == null) {
        return;
      }
      if (held instanceof Long) {
        out.writeLong((Long) held);
      } else if (held instanceof Double) {
        out.writeDouble((Double) held);
      } else {
        bytes(out, held.toString().getBytes(StandardCharsets.UTF_8));
      }
    }

    @Override
    void read(DataInputStream in) throws IOException {
      if (!in.readBoolean()) {
        return;
      }
      if (type.equals("long")) {
        held = in.readLong();
      } else if (type.equals("double")) {
        held = in.readDouble();
      } else {
        String text = new String(bytes(in), StandardCharsets.UTF_8);
        held = type.equals("decimal") ? new BigDecimal(text) : text;
      }
    }
  }

  private static final class Distinct extends Measure {
    /** Stands for the empty text, which the sketch leaves out: no text has these bytes. */
    private static final byte[] EMPTY = {(byte) 0xFF};

    private HllSketch sketch = new HllSketch(LG_K, TgtHllType.HLL_8);

    @Override
    void add(Object value) {
      String text = (String) value;
      if (text.isEmpty()) {
        sketch.update(EMPTY);
      } else {
        sketch.update(text);
      }
    }

    @Override
    void merge(Measure other) {
      Union union = new Union(LG_K);
      union.update(sketch);
      union.update(((Distinct) other).sketch);
      sketch = union.getResult(TgtHllType.HLL_8);
    }

    /** Of the registers alone: the other estimator of the sketch depends on the order in which values came. */
    @Override
    Object result() {
      return Math.round(sketch.getCompositeEstimate());
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      bytes(out, sketch.toCompactByteArray());
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sketch = HllSketch.heapify(bytes(in));
    }
  }

  private static final class Quantile extends Measure {
    private final double rank;
    private KllDoublesSketch sketch = KllDoublesSketch.newHeapInstance();

    Quantile(double rank) {
      this.rank = rank;
    }

    @Override
    void add(Object value) {
      sketch.update((Double) value);
    }

    @Override
    void merge(Measure other) {
      sketch.merge(((Quantile) other).sketch);
    }

    @Override
    Object result() {
      return sketch.isEmpty() ? null : sketch.getQuantile(rank);
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      bytes(out, sketch.toByteArray());
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sketch = KllDoublesSketch.heapify(Memory.wrap(bytes(in)));
    }
  }
}
