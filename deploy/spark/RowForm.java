package headwater.spark;

import java.io.Serial;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Reads a row as Debezium writes it: all columns, in their order, each value of its column's type. */
final class RowForm implements Serializable {
  @Serial private static final long serialVersionUID = 1L;

  /** How a value is read that is not null; the kinds of cdc/types/native.py. */
  private enum Kind {
    BOOLEAN, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY;

    Object read(JsonBytes in) {
      return switch (this) {
        case BOOLEAN -> in.truth();
        case SMALLINT -> (short) within(in.whole(), Short.MIN_VALUE, Short.MAX_VALUE);
        case INT -> (int) within(in.whole(), Integer.MIN_VALUE, Integer.MAX_VALUE);
        case BIGINT -> in.whole();
        case FLOAT -> single(in);
        case DOUBLE -> fraction(in);
        case STRING -> in.text();
        case BINARY -> binary(in);
      };
    }
  }

  private final byte[][] names;
  private final Kind[] kinds;
  private final boolean[] many;

  /**
   * @param names each column's name as it stands in JSON, with its quotes
   * @param row the columns' types
   */
  RowForm(List<String> names, StructType row) {
    StructField[] fields = row.fields();
    this.names = new byte[fields.length][];
    this.kinds = new Kind[fields.length];
    this.many = new boolean[fields.length];
    for (int one = 0; one < fields.length; one++) {
      DataType type = fields[one].dataType();
      many[one] = type instanceof ArrayType;
      DataType element = many[one] ? ((ArrayType) type).elementType() : type;
      kinds[one] = Kind.valueOf(element.sql());
      this.names[one] = ((one == 0 ? '{' : ',') + names.get(one) + ':').getBytes(StandardCharsets.UTF_8);
    }
  }

  /** The row that stands here. */
  InternalRow read(JsonBytes in) {
    Object[] values = new Object[names.length];
    for (int one = 0; one < values.length; one++) {
      in.take(names[one]);
      if (!in.tookNull()) {
        values[one] = many[one] ? array(kinds[one], in) : kinds[one].read(in);
      }
    }
    in.take('}');
    return new GenericInternalRow(values);
  }

  private static GenericArrayData array(Kind kind, JsonBytes in) {
    in.take('[');
    List<Object> found = new ArrayList<>();
    if (!in.took(']')) {
      do {
        found.add(in.tookNull() ? null : kind.read(in));
      } while (in.took(','));
      in.take(']');
    }
    return new GenericArrayData(found.toArray());
  }

  private static long within(long value, long least, long most) {
    if (value < least || value > most) {
      throw JsonBytes.ODD;
    }
    return value;
  }

  private static float single(JsonBytes in) {
    double wide = fraction(in);
    float found = (float) wide;
    if (Float.isInfinite(found) && !Double.isInfinite(wide)) {
      throw JsonBytes.ODD;
    }
    return found;
  }

  private static double fraction(JsonBytes in) {
    if (in.is('"')) {
      return switch (in.text().toString()) {
        case "NaN" -> Double.NaN;
        case "Infinity" -> Double.POSITIVE_INFINITY;
        case "-Infinity" -> Double.NEGATIVE_INFINITY;
        default -> throw JsonBytes.ODD;
      };
    }
    double found = Double.parseDouble(in.fraction());
    if (Double.isInfinite(found)) {
      throw JsonBytes.ODD;
    }
    return found;
  }

  /** Base64 to the letter: what other coders let pass, or read otherwise, is for the codec. */
  private static byte[] binary(JsonBytes in) {
    byte[] text = in.text().getBytes();
    try {
      byte[] found = Base64.getDecoder().decode(text);
      if (Arrays.equals(Base64.getEncoder().encode(found), text)) {
        return found;
      }
    } catch (IllegalArgumentException error) {
      // as below
    }
    throw JsonBytes.ODD;
  }
}
