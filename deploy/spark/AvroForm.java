package headwater.spark;

import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.avro.Schema;

/**
 * How the values of a schema are copied from Avro's bytes to JSON's, without a value of Java's between them.
 *
 * <p>As cdc/records/avro_reader.py reads them: bytes become base64, four-byte floats their shortest digits, NaN and the
 * infinities words, logical types the raw numbers, escaped names the columns'. A copy throws IllegalArgumentException or
 * IndexOutOfBoundsException for bytes that are not of the schema.
 */
abstract class AvroForm {
  private static final Pattern ESCAPED = Pattern.compile("(?:_u[0-9a-f]{4})+");
  private static final Set<String> EVENT = Set.of("after", "source", "op");
  private static final Set<String> SOURCE = 
      Set.of("schema", "table", "lsn", "sequence", "snapshot", "ts_ms", "txId", "xmin");
  /** An array of values that take no bytes could be told in a few bytes and fill the memory. */
  private static final int MOST_EMPTY = 100_000;

  /** Copy one value. */
  abstract void copy(In in, Out out);

  /**
   * The form of an event's schema.
   *
   * @throws IllegalArgumentException a part of it is none that Connect writes.
   */
  static AvroForm of(Schema schema) {
    if (schema.getType() != Schema.Type.RECORD) {
      throw new IllegalArgumentException("it is not a record");
    }
    boolean event = EVENT.stream().allMatch(name -> schema.getField(name) != null);
    return row(schema, event ? EVENT : null, new HashSet<>());
  }

  private static AvroForm made(Schema schema, Set<String> wanted, Set<String> open) {
    return switch (schema.getType()) {
      case NULL -> form((in, out) -> out.raw(NULL));
      case BOOLEAN -> form((in, out) -> out.raw(in.yes() ? TRUE : FALSE));
      case INT, LONG -> form((in, out) -> out.ascii(Long.toString(in.number())));
      case FLOAT -> form((in, out) -> out.ascii(shortest(Float.intBitsToFloat(in.four()))));
      case DOUBLE -> form((in, out) -> out.ascii(shown(Double.longBitsToDouble(in.eight()))));
      case STRING -> form((in, out) -> out.text(in.bytes, in.skip(in.size()), in.at));
      case BYTES -> form((in, out) -> out.quoted(Base64.getEncoder().encode(in.slice())));
      case RECORD -> row(schema, wanted, open);
      case UNION -> optional(schema.getTypes(), wanted, open);
      case ARRAY -> many(null, made(schema.getElementType(), null, open), '[', ']');
      case MAP -> many(made(Schema.create(Schema.Type.STRING), null, open), made(schema.getValueType(), null, open), '{', '}');
      default -> throw new IllegalArgumentException(schema.getType() + " is not known");
    };
  }

  /** Fields in the schema's order, of which some are read and forgotten. */
  private static AvroForm row(Schema schema, Set<String> wanted, Set<String> open) {
    if (!open.add(schema.getFullName())) {
      throw new IllegalArgumentException("a record in itself");
    }
    List<Schema.Field> fields = schema.getFields();
    byte[][] names = new byte[fields.size()][];
    AvroForm[] forms = new AvroForm[fields.size()];
    for (int at = 0; at < forms.length; at++) {
      Schema.Field field = fields.get(at);
      boolean source = wanted == EVENT && field.name().equals("source");
      forms[at] = made(field.schema(), source ? SOURCE : null, open);
      names[at] = wanted == null || wanted.contains(field.name()) ? name(field.name()) : null;
    }
    open.remove(schema.getFullName());
    return form((in, out) -> {
      byte before = '{';
      for (int at = 0; at < forms.length; at++) {
        int mark = out.size;
        if (names[at] != null) {
          out.one(before);
          out.raw(names[at]);
          before = ',';
        }
        forms[at].copy(in, out);
        out.size = names[at] == null ? mark : out.size;
      }
      if (before == '{') {
        out.one(before);
      }
      out.one((byte) '}');
    });
  }

  /** Null or a value: all that Connect writes. */
  private static AvroForm optional(List<Schema> schemas, Set<String> wanted, Set<String> open) {
    int none = schemas.size() != 2 ? -1 : schemas.get(0).getType() == Schema.Type.NULL ? 0 : 1;
    if (none < 0 || schemas.get(none).getType() != Schema.Type.NULL) {
      throw new IllegalArgumentException("a union of other than null and a value");
    }
    AvroForm value = made(schemas.get(1 - none), wanted, open);
    return form((in, out) -> {
      long branch = in.number();
      if (branch == none) {
        out.raw(NULL);
      } else if (branch == 1 - none) {
        value.copy(in, out);
      } else {
        throw new IllegalArgumentException("a union of two has no such branch");
      }
    });
  }

  /** Blocks of items; of a map each with its key. */
  private static AvroForm many(AvroForm key, AvroForm value, char first, char last) {
    return form((in, out) -> {
      out.one((byte) first);
      boolean begun = false;
      for (long count = in.count(MOST_EMPTY); count > 0; count = in.count(MOST_EMPTY)) {
        for (long item = 0; item < count; item++) {
          if (begun) {
            out.one((byte) ',');
          }
          begun = true;
          if (key != null) {
            key.copy(in, out);
            out.one((byte) ':');
          }
          value.copy(in, out);
        }
      }
      out.one((byte) last);
    });
  }

  private interface Copy {
    void copy(In in, Out out);
  }

  private static AvroForm form(Copy how) {
    return new AvroForm() {
      @Override
      void copy(In in, Out out) {
        how.copy(in, out);
      }
    };
  }

  private static final byte[] NULL = "null".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] TRUE = "true".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] FALSE = "false".getBytes(StandardCharsets.US_ASCII);

  /** A field's name as JSON, with its colon: ``_uXXXX`` is a character of the column's (half of one, beyond the first 65,536). */
  private static byte[] name(String field) {
    Matcher found = ESCAPED.matcher(field);
    String column = found.replaceAll(match -> Matcher.quoteReplacement(characters(match.group())));
    byte[] utf8 = column.getBytes(StandardCharsets.UTF_8);
    Out out = new Out();
    out.text(utf8, 0, utf8.length);
    out.one((byte) ':');
    return out.bytes();
  }

  private static String characters(String escaped) {
    StringBuilder out = new StringBuilder();
    for (String one : escaped.substring(2).split("_u")) {
      out.append((char) Integer.parseInt(one, 16));
    }
    return out.toString();
  }

  /** The shortest decimal that is this number among those of four bytes, as Java from 19 on prints it. */
  static String shortest(float value) {
    String told = Float.toString(value);
    // Six digits tell apart fewer decimals than there are floats: no shorter one is this number.
    if (!Float.isFinite(value) || value == 0 || digits(told) <= 6 && Math.abs(value) >= Float.MIN_NORMAL) {
      return Float.isFinite(value) ? told : quoted(told);
    }
    BigDecimal exact = new BigDecimal(value);
    for (int digits = 6; digits <= 8; digits++) {
      BigDecimal rounded = exact.round(new MathContext(digits, java.math.RoundingMode.HALF_EVEN));
      if (rounded.floatValue() == value) {
        return rounded.compareTo(new BigDecimal(told)) == 0 ? told : rounded.toString();
      }
    }
    return exact.round(new MathContext(9, java.math.RoundingMode.HALF_EVEN)).toString();
  }

  private static int digits(String told) {
    int count = 0;
    for (int at = 0; at < told.length() && told.charAt(at) != 'E'; at++) {
      count += Character.isDigit(told.charAt(at)) ? 1 : 0;
    }
    return count;
  }

  private static String shown(double value) {
    String told = Double.toString(value);
    return Double.isFinite(value) ? told : quoted(told);
  }

  private static String quoted(String word) {
    return '"' + word + '"';
  }

  /** The bytes of a value, and how far they are read. */
  static final class In {
    final byte[] bytes;
    int at;

    In(byte[] bytes, int at) {
      this.bytes = bytes;
      this.at = at;
    }

    boolean atEnd() {
      return at == bytes.length;
    }

    boolean yes() {
      byte told = bytes[at++];
      if ((told & 0xff) > 1) {
        throw new IllegalArgumentException("neither true nor false");
      }
      return told == 1;
    }

    /** A whole number: seven bits a byte, zigzag. */
    long number() {
      long found = 0;
      for (int shift = 0; shift <= 63; shift += 7) {
        byte next = bytes[at++];
        if (shift == 63 && next > 1) {
          throw new IllegalArgumentException("a number of more than 64 bits");
        }
        found |= (next & 0x7fL) << shift;
        if (next >= 0) {
          return (found >>> 1) ^ -(found & 1);
        }
      }
      throw new IllegalArgumentException("a number of more than 64 bits");
    }

    int four() {
      int from = skip(4);
      return ByteBuffer.wrap(bytes, from, 4).order(java.nio.ByteOrder.LITTLE_ENDIAN).getInt();
    }

    long eight() {
      int from = skip(8);
      return ByteBuffer.wrap(bytes, from, 8).order(java.nio.ByteOrder.LITTLE_ENDIAN).getLong();
    }

    int size() {
      long size = number();
      if (size < 0 || size > bytes.length - at) {
        throw new IllegalArgumentException("text or bytes that are longer than the record");
      }
      return (int) size;
    }

    /** Pass over so many bytes; where they begin. */
    int skip(int size) {
      if (size > bytes.length - at) {
        throw new IndexOutOfBoundsException(size);
      }
      int from = at;
      at += size;
      return from;
    }

    byte[] slice() {
      int from = skip(size());
      return Arrays.copyOfRange(bytes, from, at);
    }

    /** Items of the next block; 0 after the last one. */
    long count(int more) {
      long count = number();
      if (count < 0) {
        count = -count;
        number(); // the block's bytes
      }
      if (count < 0 || count > (long) bytes.length - at + more) {
        throw new IllegalArgumentException("more items than bytes");
      }
      return count;
    }
  }

  /** JSON as it grows. */
  static final class Out {
    private static final int KEPT = 1 << 20;
    private byte[] bytes = new byte[4_096];
    int size;

    /** To begin anew; a large record's room is given back. */
    Out empty() {
      size = 0;
      bytes = bytes.length > KEPT ? new byte[4_096] : bytes;
      return this;
    }

    byte[] bytes() {
      return Arrays.copyOf(bytes, size);
    }

    private void room(int more) {
      if (bytes.length - size < more) {
        bytes = Arrays.copyOf(bytes, Math.max(Math.addExact(size, more), bytes.length * 2));
      }
    }

    void one(byte value) {
      room(1);
      bytes[size++] = value;
    }

    void raw(byte[] value) {
      room(value.length);
      System.arraycopy(value, 0, bytes, size, value.length);
      size += value.length;
    }

    @SuppressWarnings("deprecation") // one byte a character is what is wanted
    void ascii(String value) {
      room(value.length());
      value.getBytes(0, value.length(), bytes, size);
      size += value.length();
    }

    void quoted(byte[] value) {
      one((byte) '"');
      raw(value);
      one((byte) '"');
    }

    /** Text, of UTF-8. */
    void text(byte[] from, int begin, int end) {
      room(end - begin + 2);
      bytes[size++] = '"';
      boolean plain = true;
      for (int at = begin; at < end; at++) {
        byte next = from[at];
        if (next == '"' || next == '\\' || next >= 0 && next < ' ') {
          escape(next, end - at + 1);
        } else {
          plain &= next >= 0;
          bytes[size++] = next;
        }
      }
      one((byte) '"');
      if (!plain) {
        check(from, begin, end);
      }
    }

    private void escape(byte next, int left) {
      int at = "\b\t\n\f\r\"\\".indexOf(next);
      ascii(at >= 0 ? "\\" + "btnfr\"\\".charAt(at) : String.format(Locale.ROOT, "\\u%04X", next));
      room(left);
    }

    private static void check(byte[] from, int begin, int end) {
      try {
        StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(from, begin, end - begin));
      } catch (CharacterCodingException error) {
        throw new IllegalArgumentException("text that is no UTF-8", error);
      }
    }
  }
}
