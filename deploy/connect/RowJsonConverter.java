package headwater.connect;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.SerializableString;
import com.fasterxml.jackson.core.io.SerializedString;
import com.fasterxml.jackson.core.util.ByteArrayBuilder;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;

/**
 * Kafka's JSON without schemas, byte for byte, but of a change event only what is read.
 *
 * <p>Kafka's own converter makes a tree of each record and then text of the tree, and a transformation before it that
 * leaves fields out makes the record anew and compares its schema field by field: a third of the time of the thread that
 * sends. Here the text is made at once. Records that are no change events are written whole, and what has one of
 * Connect's own types (which Debezium never sends with our settings) is left to Kafka's converter.
 */
public final class RowJsonConverter implements Converter {
    private static final int KNOWN_SCHEMAS = 2_000;
    private static final Set<String> EVENT = Set.of("after", "source", "op");
    private static final Set<String> SOURCE =
            Set.of("schema", "table", "lsn", "sequence", "snapshot", "ts_ms", "txId");
    private static final Set<String> LOGICAL =
            Set.of(Decimal.LOGICAL_NAME, Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME);

    private final JsonConverter whole = new JsonConverter();
    private final JsonFactory json = new JsonFactory();
    // A table's schema is one object for as long as the table stays as it is. By identity: to compare one is dear.
    private final Map<Schema, Writer> writers = new IdentityHashMap<>();

    @Override
    public void configure(Map<String, ?> settings, boolean isKey) {
        Map<String, Object> plain = new HashMap<>(settings);
        plain.put("schemas.enable", "false");
        plain.put("replace.null.with.default", "false");
        whole.configure(plain, isKey);
    }

    @Override
    public byte[] fromConnectData(String topic, Headers headers, Schema schema, Object value) {
        return fromConnectData(topic, schema, value);
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        if (schema == null || value == null) {
            return whole.fromConnectData(topic, schema, value); // a tombstone
        }
        Writer writer = writerOf(schema);
        if (writer == null) {
            return whole.fromConnectData(topic, schema, value);
        }
        try (ByteArrayBuilder out = new ByteArrayBuilder(1_000)) {
            try (JsonGenerator generator = json.createGenerator(out)) {
                writer.write(generator, value);
            }
            return out.toByteArray();
        } catch (IOException error) {
            throw new DataException("Converting to JSON failed: " + error.getMessage(), error);
        }
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return whole.toConnectData(topic, value);
    }

    /** How values of a schema are written; null for one that Kafka's converter writes. */
    private Writer writerOf(Schema schema) {
        synchronized (writers) {
            if (writers.containsKey(schema)) {
                return writers.get(schema);
            }
            if (writers.size() >= KNOWN_SCHEMAS) {
                writers.clear();
            }
            Writer made = isPlain(schema) ? made(schema, isEvent(schema) ? EVENT : null) : null;
            writers.put(schema, made);
            return made;
        }
    }

    private static boolean isEvent(Schema schema) {
        return schema.name() != null
                && schema.name().endsWith(".Envelope")
                && schema.type() == Schema.Type.STRUCT
                && EVENT.stream().allMatch(name -> schema.field(name) != null);
    }

    private static boolean isPlain(Schema schema) {
        if (schema.name() != null && LOGICAL.contains(schema.name())) {
            return false;
        }
        switch (schema.type()) {
            case STRUCT:
                return schema.fields().stream().allMatch(field -> isPlain(field.schema()));
            case ARRAY:
                return isPlain(schema.valueSchema());
            case MAP:
                return schema.keySchema().type() == Schema.Type.STRING
                        && isPlain(schema.keySchema())
                        && isPlain(schema.valueSchema());
            default:
                return true;
        }
    }

    private static Writer made(Schema schema, Set<String> wanted) {
        Writer value;
        switch (schema.type()) {
            case INT8:
            case INT16:
            case INT32:
            case INT64:
                value = (out, found) -> out.writeNumber(((Number) found).longValue());
                break;
            case FLOAT32:
                value = (out, found) -> out.writeNumber((float) (Float) found);
                break;
            case FLOAT64:
                value = (out, found) -> out.writeNumber((double) (Double) found);
                break;
            case BOOLEAN:
                value = (out, found) -> out.writeBoolean((Boolean) found);
                break;
            case STRING:
                value = (out, found) -> out.writeString(found.toString());
                break;
            case BYTES:
                value = (out, found) -> out.writeBinary(bytesOf(found));
                break;
            case ARRAY:
                value = list(made(schema.valueSchema(), null));
                break;
            case MAP:
                value = map(made(schema.valueSchema(), null));
                break;
            case STRUCT:
                value = new Row(schema, wanted);
                break;
            default:
                throw new DataException("Can't write " + schema.type() + " as JSON");
        }
        boolean optional = schema.isOptional();
        return (out, found) -> {
            if (found != null) {
                value.write(out, found);
            } else if (optional) {
                out.writeNull();
            } else {
                throw new DataException("Null for a field that is required and has no default value");
            }
        };
    }

    private static byte[] bytesOf(Object found) {
        if (found instanceof byte[]) {
            return (byte[]) found;
        }
        ByteBuffer buffer = ((ByteBuffer) found).duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static Writer list(Writer element) {
        return (out, found) -> {
            out.writeStartArray();
            for (Object one : (Collection<?>) found) {
                element.write(out, one);
            }
            out.writeEndArray();
        };
    }

    private static Writer map(Writer value) {
        return (out, found) -> {
            out.writeStartObject();
            for (Map.Entry<?, ?> one : ((Map<?, ?>) found).entrySet()) {
                out.writeFieldName((String) one.getKey());
                value.write(out, one.getValue());
            }
            out.writeEndObject();
        };
    }

    private interface Writer {
        void write(JsonGenerator out, Object value) throws IOException;
    }

    /** Fields in the schema's order, of which some may be left out. */
    private static final class Row implements Writer {
        private final Schema schema;
        private final List<Field> fields = new ArrayList<>();
        private final List<SerializableString> names = new ArrayList<>();
        private final List<Writer> writers = new ArrayList<>();

        Row(Schema schema, Set<String> wanted) {
            this.schema = schema;
            for (Field field : schema.fields()) {
                if (wanted == null || wanted.contains(field.name())) {
                    fields.add(field);
                    // Names beyond the first plane are escaped, as text is, unless they were made ready before.
                    boolean ready = field.name().chars().noneMatch(c -> Character.isSurrogate((char) c));
                    names.add(ready ? new SerializedString(field.name()) : null);
                    boolean source = wanted == EVENT && field.name().equals("source");
                    writers.add(made(field.schema(), source ? SOURCE : null));
                }
            }
        }

        @Override
        public void write(JsonGenerator out, Object value) throws IOException {
            Struct row = (Struct) value;
            if (row.schema() != schema && !row.schema().equals(schema)) {
                throw new DataException("Mismatching schema.");
            }
            out.writeStartObject();
            for (int at = 0; at < fields.size(); at++) {
                Field field = fields.get(at);
                // The DEFAULT of a column is no value of a row that has NULL there.
                boolean defaults = field.schema().defaultValue() != null;
                if (names.get(at) != null) {
                    out.writeFieldName(names.get(at));
                } else {
                    out.writeFieldName(field.name());
                }
                writers.get(at).write(out, defaults ? row.getWithoutDefault(field.name()) : row.get(field));
            }
            out.writeEndObject();
        }
    }
}
