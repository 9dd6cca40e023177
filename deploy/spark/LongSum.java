package headwater.spark;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * A sum that does not fit is null, as Spark's {@code try_sum}: an error would stop the flow for ever. Only the sum of all is
 * judged: what does not fit on the way may fit again, and in which order values come must not matter.
 */
final class LongSum extends Measure {
  /** What follows the sum in the state: nothing; or that a Headwater before has lost it (both as it wrote them); or wraps. */
  private static final byte FITS = 0;

  private static final byte LOST = 1;
  private static final byte WRAPPED = 2;

  /** The sum is this and {@code wraps} times 2^64: so it fits exactly where there are none. */
  private long sum;
  private long wraps;
  private boolean any;
  private boolean lost;

  @Override
  void add(Object value) {
    any = true;
    add(((Long) value).longValue());
  }

  private void add(long more) {
    long next = sum + more;
    if (((sum ^ next) & (more ^ next)) < 0) {
      wraps += more < 0 ? -1 : 1;
    }
    sum = next;
  }

  @Override
  void merge(Measure other) {
    LongSum more = (LongSum) other;
    any |= more.any;
    lost |= more.lost;
    wraps += more.wraps;
    add(more.sum);
  }

  @Override
  Object result() {
    return any && !lost && wraps == 0 ? sum : null;
  }

  @Override
  void write(DataOutputStream out) throws IOException {
    out.writeLong(sum);
    out.writeBoolean(any);
    out.writeByte(lost ? LOST : wraps == 0 ? FITS : WRAPPED);
    if (!lost && wraps != 0) {
      out.writeLong(wraps);
    }
  }

  @Override
  void read(DataInputStream in) throws IOException {
    sum = in.readLong();
    any = in.readBoolean();
    byte kind = in.readByte();
    lost = kind == LOST;
    wraps = kind == WRAPPED ? in.readLong() : 0;
  }
}
