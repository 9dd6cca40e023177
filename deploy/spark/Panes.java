package headwater.spark;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/** The open windows of one key: one, or of sessions any number; and how they lie in the state. */
final class Panes {
  /** Of the bytes below. Those of {@link #BEFORE} are read, too; others are refused, and never read as something else. */
  private static final byte FORMAT = 2;

  /** Without {@code armed}: each end had a timer of its own. Of measures what {@link Measure} still reads. */
  private static final byte BEFORE = 1;

  /** A window, and what was seen in it. */
  static final class Pane {
    long start;
    long end;
    /** Before this batch, until {@link #settle}; of windows that became one the highest. */
    long version = -1;
    /** The highest of what this batch has added. */
    long newest = -1;
    /** Of the document that is there under its start; -1 if there is none. */
    private long told = -1;
    long late;
    Measure[] measures;
    /** Since when it was last written: something was added. */
    boolean changed;
    /** The state does not have it yet, or with another end. */
    boolean moved;

    Pane(long start, long end, String[] kinds) {
      this.start = start;
      this.end = end;
      this.moved = true;
      measures = Measure.all(kinds);
    }

    /** Its version after this batch, whatever the order and the number of rows in which it came. */
    void settle() {
      // Partitions are read at different speeds: what comes later may be older, and must be written all the same.
      version = Math.max(version + 1, newest);
    }
  }

  /** A session whose place another one has taken: its document goes. */
  static final class Gone {
    final long start;
    final long end;
    final long version;

    Gone(Pane pane) {
      start = pane.start;
      end = pane.end;
      version = pane.told + 1;
    }
  }

  private final String[] kinds;
  final List<Pane> open = new ArrayList<>();
  final List<Gone> gone = new ArrayList<>();

  /** The timer that was set last, in microseconds: the next event mostly has the same. */
  long armed = Long.MIN_VALUE;

  Panes(String[] kinds) {
    this.kinds = kinds;
  }

  /**
   * The pane that an event belongs to.
   *
   * <p>Sessions that overlap become one, which begins where the first of them did; another one that was written is gone.
   */
  Pane at(long start, long end) {
    Pane found = null;
    for (int index = 0; index < open.size(); index++) {
      Pane pane = open.get(index);
      if (pane.start >= end || start >= pane.end) {
        continue;
      }
      if (found == null) {
        found = pane;
        if (start < pane.start) {
          depart(pane);
        }
        stretch(pane, Math.min(start, pane.start), Math.max(end, pane.end));
      } else {
        Pane first = pane.start < found.start ? pane : found;
        Pane second = first == pane ? found : pane;
        depart(second);
        stretch(first, Math.min(first.start, second.start), Math.max(first.end, second.end));
        for (int at = 0; at < first.measures.length; at++) {
          first.measures[at].merge(second.measures[at]);
        }
        first.version = Math.max(first.version, second.version);
        first.newest = Math.max(first.newest, second.newest);
        first.late += second.late;
        open.remove(second);
        index--;
        found = first;
      }
    }
    if (found == null) {
      found = new Pane(start, end, kinds);
      open.add(found);
    }
    found.changed = true;
    return found;
  }

  private void depart(Pane pane) {
    if (pane.told >= 0) {
      gone.add(new Gone(pane));
      pane.told = -1;
    }
  }

  private static void stretch(Pane pane, long start, long end) {
    pane.moved |= end != pane.end;
    pane.start = start;
    pane.end = end;
  }

  byte[] write() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeByte(FORMAT);
      out.writeLong(armed);
      out.writeInt(open.size());
      for (Pane pane : open) {
        out.writeLong(pane.start);
        out.writeLong(pane.end);
        out.writeLong(pane.version);
        out.writeLong(pane.late);
        for (Measure measure : pane.measures) {
          measure.write(out);
        }
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes.toByteArray();
  }

  static Panes read(byte[] bytes, String[] kinds) {
    Panes panes = new Panes(kinds);
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
      byte format = in.readByte();
      if (format != FORMAT && format != BEFORE) {
        throw new IllegalStateException("a window's state of format " + format + ", which this Headwater does not know");
      }
      panes.armed = format == FORMAT ? in.readLong() : Long.MIN_VALUE;
      for (int left = in.readInt(); left > 0; left--) {
        Pane pane = new Pane(in.readLong(), in.readLong(), kinds);
        pane.version = in.readLong();
        pane.told = pane.version;
        pane.late = in.readLong();
        pane.moved = false;
        for (Measure measure : pane.measures) {
          measure.read(in);
        }
        panes.open.add(pane);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return panes;
  }
}
