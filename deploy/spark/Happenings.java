package headwater.spark;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.encoders.RowEncoder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/** The events of one key that something may still follow, and how they lie in the state. */
final class Happenings {
  /** Nobody was told of a document. */
  static final long UNTOLD = -1;

  /** Of the bytes below. Others are refused, and never read as something else. */
  private static final byte FORMAT = 2;
  /** Events of one key at once: all of them are read for each that comes. More are dead letters. */
  private static final int MOST = 10_000;
  /** Followers that a document lists; all are counted. */
  private static final int LISTED = 100;

  /** An event. */
  static final class One {
    int kind;
    long at;
    boolean late;
    String view;
    String id;
    String topic;
    int partition;
    long offset;
    long committed;
    long version = -1;
    long told = UNTOLD;
    /** No event that is still to come can be earlier. */
    boolean settled;
    Row said;

    Row told(boolean gone, Row value) {
      return RowFactory.create(view, id, version, null, topic, partition, offset, committed, null, gone, value);
    }
  }

  /** Other events around one: how many, since when, how many of all these were late, and the first of them. */
  static final class Company {
    long count;
    long since;
    long late;
    final List<Row> list = new ArrayList<>();
  }

  private final List<One> all = new ArrayList<>();

  /** The timer that was set last, by which something is forgotten, in microseconds: the next event mostly has the same. */
  long armed = Long.MIN_VALUE;

  boolean isEmpty() {
    return all.isEmpty();
  }

  boolean full() {
    return all.size() >= MOST;
  }

  List<One> firsts() {
    return all.stream().filter(one -> one.kind == 0).toList();
  }

  One add(Row row) {
    One one = new One();
    one.view = row.getString(0);
    one.id = row.getString(1);
    one.topic = row.getString(4);
    one.partition = row.getInt(5);
    one.offset = row.getLong(6);
    one.committed = row.getLong(7);
    one.at = row.getLong(Timed.P_START);
    one.version = row.getLong(Timed.P_VERSION) - 1;
    one.late = row.getBoolean(Timed.P_LATE);
    one.kind = row.getInt(Timed.P_GROUPING);
    one.said = row.getStruct(Timed.P_VALUE).getStruct(one.kind);
    all.add(one);
    return one;
  }

  /** Those that followed it within a time, both ends included. */
  Company after(One one, long within) {
    List<One> found =
        all.stream()
            .filter(other -> other.kind == 1 && other.at >= one.at && other.at <= one.at + within && !other.id.equals(one.id))
            .sorted(Comparator.comparingLong((One other) -> other.at).thenComparing(other -> other.id))
            .toList();
    Company company = new Company();
    company.count = found.size();
    company.since = one.at;
    company.late = found.stream().filter(other -> other.late).count() + (one.late ? 1 : 0);
    found.stream().limit(LISTED).forEach(other -> company.list.add(RowFactory.create(other.at, other.said)));
    return company;
  }

  /** Those of its kind up to it, within a time; itself counts too. */
  Company before(One one, long within) {
    Company company = new Company();
    company.since = one.at;
    for (One other : all) {
      boolean earlier = other.at < one.at || (other.at == one.at && other.id.compareTo(one.id) <= 0);
      if (other.kind == 0 && earlier && other.at > one.at - within) {
        company.count++;
        company.since = Math.min(company.since, other.at);
        company.late += other.late ? 1 : 0;
      }
    }
    return company;
  }

  /**
   * Without those that matter to nobody any more: a first event and all that followed it go together, for who is looked at once
   * more must find its company complete. Of a threshold earlier ones go first: who can get no more of them is settled.
   */
  void forget(long safe, long within) {
    all.removeIf(one -> one.at + within < safe);
    all.forEach(one -> one.settled |= one.at < safe);
  }

  /** How events become bytes. */
  static final class Form {
    private final ExpressionEncoder.Serializer<Row>[] writes;
    private final ExpressionEncoder.Deserializer<Row>[] reads;
    private final int[] widths;

    @SuppressWarnings("unchecked")
    Form(StructType first, StructType then) {
      writes = new ExpressionEncoder.Serializer[2];
      reads = new ExpressionEncoder.Deserializer[2];
      widths = new int[] {first.length(), then.length()};
      StructType[] types = {first, then};
      for (int at = 0; at < 2; at++) {
        ExpressionEncoder<Row> made = ExpressionEncoder.apply(RowEncoder.encoderFor(types[at]));
        ExpressionEncoder<Row> bound = made.resolveAndBind(made.resolveAndBind$default$1(), made.resolveAndBind$default$2());
        writes[at] = bound.createSerializer();
        reads[at] = bound.createDeserializer();
      }
    }

    byte[] write(Happenings held) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      try (DataOutputStream out = new DataOutputStream(bytes)) {
        out.writeByte(FORMAT);
        out.writeLong(held.armed);
        out.writeInt(held.all.size());
        for (One one : held.all) {
          out.writeByte(one.kind);
          out.writeLong(one.at);
          out.writeBoolean(one.late);
          out.writeUTF(one.view);
          byte[] id = one.id.getBytes(java.nio.charset.StandardCharsets.UTF_8);
          out.writeInt(id.length);
          out.write(id);
          out.writeUTF(one.topic);
          out.writeInt(one.partition);
          out.writeLong(one.offset);
          out.writeLong(one.committed);
          out.writeLong(one.version);
          out.writeLong(one.told);
          out.writeBoolean(one.settled);
          byte[] said = ((UnsafeRow) writes[one.kind].apply(one.said)).getBytes();
          out.writeInt(said.length);
          out.write(said);
        }
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      return bytes.toByteArray();
    }

    Happenings read(byte[] bytes) {
      Happenings held = new Happenings();
      try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
        byte format = in.readByte();
        if (format != FORMAT) {
          throw new IllegalStateException("events' state of format " + format + ", which this Headwater does not know");
        }
        held.armed = in.readLong();
        for (int left = in.readInt(); left > 0; left--) {
          One one = new One();
          one.kind = in.readByte();
          one.at = in.readLong();
          one.late = in.readBoolean();
          one.view = in.readUTF();
          one.id = new String(in.readNBytes(in.readInt()), java.nio.charset.StandardCharsets.UTF_8);
          one.topic = in.readUTF();
          one.partition = in.readInt();
          one.offset = in.readLong();
          one.committed = in.readLong();
          one.version = in.readLong();
          one.told = in.readLong();
          one.settled = in.readBoolean();
          byte[] said = in.readNBytes(in.readInt());
          UnsafeRow row = new UnsafeRow(widths[one.kind]);
          row.pointTo(said, said.length);
          one.said = reads[one.kind].apply(row);
          held.all.add(one);
        }
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      return held;
    }
  }
}
