package headwater.spark;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Values in Avro (Confluent's framing: a zero byte, a schema's id, the event) as the JSON that they would be.
 *
 * <p>Of an event only what is read is written, as RowJsonConverter does on its way into the log. Whatever is not certain
 * (a schema that the registry does not give now, bytes that are not of it, bytes that are left over) comes back as it
 * was: cdc/records/debezium_avro.py judges it, in Python, and tells what is wrong.
 */
public final class AvroText implements UDF1<byte[], byte[]> {
  private static final int HEAD = 5;
  /** By the registry's address and user; a process reads few. */
  private static final Map<String, AvroSchemas> KNOWN = new ConcurrentHashMap<>();
  private static final ThreadLocal<AvroForm.Out> OUT = ThreadLocal.withInitial(AvroForm.Out::new);

  private final String url;
  private final String user;
  private final String password;

  AvroText(String url, String user, String password) {
    this.url = url;
    this.user = user;
    this.password = password;
  }

  /** Give a session this function under a name; user and password are null where the registry asks for none. */
  public static void register(SparkSession session, String name, String url, String user, String password) {
    session.udf().register(name, functions.udf(new AvroText(url, user, password), DataTypes.BinaryType));
  }

  @Override
  public byte[] call(byte[] value) {
    if (value == null || value.length <= HEAD || value[0] != 0) {
      return value;
    }
    AvroForm form = schemas().form(ByteBuffer.wrap(value, 1, 4).getInt());
    byte[] text = form == null ? null : text(form, value);
    return text == null ? value : text;
  }

  private AvroSchemas schemas() {
    return KNOWN.computeIfAbsent(url + "\n" + user, name -> new AvroSchemas(url, user, password));
  }

  /** The JSON of a value; null if it is not of this form. */
  static byte[] text(AvroForm form, byte[] value) {
    AvroForm.In in = new AvroForm.In(value, HEAD);
    AvroForm.Out out = OUT.get().empty();
    try {
      form.copy(in, out);
      return in.atEnd() ? out.bytes() : null;
    } catch (IllegalArgumentException | IndexOutOfBoundsException error) {
      return null; // Python finds it too, and has the words for it
    }
  }
}
