package headwater.spark;

import java.io.Serial;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Change events in JSON as rows of Spark's, in one pass over their bytes.
 *
 * <p>Spark's own way (spark/reading/native_json.py) reads an event by from_json, and writes what it has read again to see that
 * it was all of it. Here nothing is passed over that is not known, so nothing has to be compared; what is not to the
 * letter is odd, here as there, and the Python codec judges it.
 */
public final class EventRows implements Serializable {
  @Serial private static final long serialVersionUID = 1L;
  private static final byte ODD = 0;
  private static final byte GONE = 1;
  private static final byte ENDED = 2;
  private static final byte UPSERT = 3;
  private static final int DIGITS_OF_LSN = 16;
  /** What a call is given is of the types that the method takes. */
  private static final scala.collection.immutable.Seq<AbstractDataType> NO_TYPES =
      CollectionConverters.asScala(List.<AbstractDataType>of()).toSeq();
  /** The bits of all fields that an event must have. */
  private static final int FIELDS = 511;
  private static final byte[] AFTER = named("after");
  private static final byte[] SOURCE = named("source");
  private static final byte[] OP = named("op");
  private static final byte[] SCHEMA = named("schema");
  private static final byte[] TABLE = named("table");
  private static final byte[] SEQUENCE = named("sequence");
  private static final byte[] SNAPSHOT = named("snapshot");
  private static final byte[] LSN = named("lsn");
  private static final byte[] TS_MS = named("ts_ms");
  private static final UTF8String FALSE = UTF8String.fromString("false");

  private final StructType row;
  private final StructType key;
  private final RowForm rowForm;
  private final RowForm keyForm;
  private final UTF8String schema;
  private final UTF8String table;
  private final byte[][] marks;
  private final boolean events;
  private final long most;

  /**
   * @param row the table's columns in DDL, as their raw values are read
   * @param rowNames their names as JSON has them, with quotes
   * @param key likewise of the key's columns
   * @param keyNames likewise
   * @param schema the table's schema
   * @param table its name
   * @param marks bytes of which one is in every event that holds a placeholder
   * @param events the records are events that only are, whose keys are of no account
   * @param most the highest LSN that there can be
   */
  public EventRows(String row, List<String> rowNames, String key, List<String> keyNames, String schema, String table,
      List<String> marks, boolean events, long most) {
    this.row = StructType.fromDDL(row);
    this.key = StructType.fromDDL(key);
    this.rowForm = new RowForm(rowNames, this.row);
    this.keyForm = new RowForm(keyNames, this.key);
    this.schema = UTF8String.fromString(schema);
    this.table = UTF8String.fromString(table);
    this.marks = marks.stream().map(JsonBytes::ascii).toArray(byte[][]::new);
    this.events = events;
    this.most = most;
  }

  /**
   * What is read of a record's key and value, both bytes.
   *
   * @param told a struct's first fields in DDL: the state, the LSN, whether it is alone, the time
   * @param after what its row is called in it
   * @param id what its key
   */
  public Column column(Column key, Column value, String told, String after, String id) {
    Expression mine = Literal.fromObject(this);
    var given = CollectionConverters.asScala(
        List.of(ExpressionUtils.expression(key), ExpressionUtils.expression(value))).toSeq();
    StructType made = StructType.fromDDL(told).add(after, row).add(id, this.key);
    return ExpressionUtils.column(new Invoke(mine, "read", made, given, NO_TYPES, false, false, true));
  }

  /** One record. */
  public InternalRow read(byte[] key, byte[] value) {
    try {
      InternalRow id = events ? null : id(key);
      if (value != null) {
        Event event = new Event(new JsonBytes(encoded(value)));
        return row(event.state(), event.place(), event.alone(), event.ts, event.after, id);
      }
      return row(events ? ODD : GONE, 0, false, 0, null, id);
    } catch (JsonBytes.Odd error) {
      return row(ODD, 0, false, 0, null, null);
    }
  }

  private InternalRow id(byte[] key) {
    if (key == null) {
      throw JsonBytes.ODD;
    }
    JsonBytes in = new JsonBytes(encoded(key));
    InternalRow id = keyForm.read(in);
    if (!in.atEnd()) {
      throw JsonBytes.ODD;
    }
    return id;
  }

  private static byte[] named(String field) {
    return JsonBytes.ascii('"' + field + "\":");
  }

  private static InternalRow row(byte state, long lsn, boolean alone, long ts, InternalRow after, InternalRow key) {
    return new GenericInternalRow(new Object[] {state, lsn, alone, ts, after, key});
  }

  private static byte[] encoded(byte[] text) {
    for (byte one : text) {
      if (one < 0) {
        try {
          StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(text));
          return text;
        } catch (CharacterCodingException error) {
          throw JsonBytes.ODD;
        }
      }
    }
    return text;
  }

  /** What is read of an event, while it is read. */
  private final class Event {
    private final JsonBytes in;
    private int met;
    private boolean marked;
    private InternalRow after;
    private UTF8String op;
    private UTF8String ofSchema;
    private UTF8String ofTable;
    private UTF8String sequence;
    private UTF8String snapshot;
    private long lsn;
    private long ts;

    Event(JsonBytes in) {
      this.in = in;
      in.take('{');
      do {
        field();
      } while (in.took(','));
      in.take('}');
      // Without a row it is none of ours, and without one of the others the codec refuses it.
      if (!in.atEnd() || met != FIELDS) {
        throw JsonBytes.ODD;
      }
    }

    private void field() {
      if (in.took(AFTER)) {
        after();
      } else if (in.took(SOURCE)) {
        source();
      } else if (in.took(OP)) {
        op = text(1);
      } else {
        in.skipField();
      }
    }

    private void after() {
      once(2);
      int first = in.at;
      if (!in.tookNull()) {
        after = rowForm.read(in);
        for (byte[] mark : marks) {
          marked |= contains(in.bytes, first, in.at, mark);
        }
      }
    }

    private void source() {
      once(4);
      in.take('{');
      do {
        sourceField();
      } while (in.took(','));
      in.take('}');
    }

    private void sourceField() {
      if (in.took(SCHEMA)) {
        ofSchema = text(8);
      } else if (in.took(TABLE)) {
        ofTable = text(16);
      } else if (in.took(SEQUENCE)) {
        sequence = text(32);
      } else if (in.took(SNAPSHOT)) {
        snapshot = text(64);
      } else if (in.took(LSN)) {
        lsn = number(128);
      } else if (in.took(TS_MS)) {
        ts = number(256);
      } else {
        in.skipField();
      }
    }

    /** Of a field that comes twice, readers take one or the other. */
    private void once(int bit) {
      if ((met & bit) != 0) {
        throw JsonBytes.ODD;
      }
      met |= bit;
    }

    private UTF8String text(int bit) {
      once(bit);
      return in.tookNull() ? null : in.text();
    }

    private long number(int bit) {
      once(bit);
      return in.tookNull() ? 0 : in.whole();
    }

    /** What it does, if it is an event of the table. */
    byte state() {
      if (!schema.equals(ofSchema) || !table.equals(ofTable)) {
        throw JsonBytes.ODD;
      }
      String kind = op == null ? "" : op.toString();
      boolean snapshotted = kind.equals("r");
      if (after == null) {
        if (events || !kind.equals("d")) {
          throw JsonBytes.ODD;
        }
        return ENDED;
      }
      boolean known = snapshotted || kind.equals("c") || (kind.equals("u") && !events);
      if (!known || (marked && !snapshotted)) {
        throw JsonBytes.ODD;
      }
      return UPSERT;
    }

    /** The highest of the LSNs that it bears. */
    long place() {
      long found = lsn;
      if (sequence != null) {
        JsonBytes pair = new JsonBytes(sequence.getBytes());
        pair.take('[');
        found = Math.max(found, half(pair));
        pair.take(',');
        found = Math.max(found, half(pair));
        pair.take(']');
        if (!pair.atEnd()) {
          throw JsonBytes.ODD;
        }
      }
      if (found < 1 || found > most) {
        throw JsonBytes.ODD;
      }
      return found;
    }

    private long half(JsonBytes pair) {
      if (pair.tookNull()) {
        return 0;
      }
      byte[] digits = pair.text().getBytes();
      if (digits.length == 0 || digits.length > DIGITS_OF_LSN) {
        throw JsonBytes.ODD;
      }
      long found = 0;
      for (byte one : digits) {
        if (one < '0' || one > '9') {
          throw JsonBytes.ODD;
        }
        found = found * 10 + (one - '0');
      }
      return found;
    }

    /** Whether it was streamed and knows no commit before its own. */
    boolean alone() {
      boolean first = sequence == null || sequence.startsWith(UTF8String.fromString("[null"));
      return first && (snapshot == null || snapshot.equals(FALSE));
    }
  }

  private static boolean contains(byte[] bytes, int from, int until, byte[] wanted) {
    for (int one = from; one <= until - wanted.length; one++) {
      if (bytes[one] == wanted[0]
          && Arrays.equals(bytes, one, one + wanted.length, wanted, 0, wanted.length)) {
        return true;
      }
    }
    return false;
  }
}
