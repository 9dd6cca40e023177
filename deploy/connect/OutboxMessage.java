package headwater.connect;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * Messages of {@code pg_logical_emit_message} as the inserts into the outbox table that they stand for.
 *
 * <p>A message is a JSON object of the table's columns. It becomes the event that Debezium would give of such a row, at
 * the message's own position. One that is no such object is no event.
 */
final class OutboxMessage {
    private static final int KNOWN_SCHEMAS = 100;
    // Of a numeric in Postgres; the zeros of 1e999999999 would be a gigabyte.
    private static final int LARGEST_SCALE = 16_383;
    private static final Charset WHOLE = StandardCharsets.UTF_8;

    private final ObjectMapper json = JsonMapper.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .nodeFactory(JsonNodeFactory.withExactBigDecimals(true))
            .build();
    private final String prefix;
    private final String schemaName;
    private final String tableName;
    private final List<String> required;
    private final Schema row;
    // By the schema of the messages' source, which is one object.
    private final Map<Schema, Schema> envelopes = new IdentityHashMap<>();

    /**
     * @param prefix of the messages that are meant
     * @param table schema.table
     * @param columns of the table: a JSON object, name -> string, json, boolean, int16, int32, int64, float, double; the
     *     type of a column that a message can't give is empty
     * @param required those without which there is no event
     */
    OutboxMessage(String prefix, String table, String columns, List<String> required) {
        this.prefix = prefix;
        this.required = required;
        int dot = table.indexOf('.');
        schemaName = table.substring(0, Math.max(dot, 0));
        tableName = table.substring(dot + 1);
        SchemaBuilder made = SchemaBuilder.struct().name("headwater.outbox.Row").optional();
        try {
            Iterator<Map.Entry<String, JsonNode>> fields = json.readTree(columns).fields();
            while (fields.hasNext()) {
                Map.Entry<String, JsonNode> one = fields.next();
                Schema kind = kind(one.getValue().asText());
                made.field(one.getKey(), kind);
            }
        } catch (JsonProcessingException error) {
            throw new ConnectException("message.columns is not JSON: " + error.getOriginalMessage(), error);
        }
        row = made.build();
    }

    private static Schema kind(String word) {
        switch (word) {
            case "boolean":
                return Schema.OPTIONAL_BOOLEAN_SCHEMA;
            case "int16":
                return Schema.OPTIONAL_INT16_SCHEMA;
            case "int32":
                return Schema.OPTIONAL_INT32_SCHEMA;
            case "int64":
                return Schema.OPTIONAL_INT64_SCHEMA;
            case "float":
                return Schema.OPTIONAL_FLOAT32_SCHEMA;
            case "double":
                return Schema.OPTIONAL_FLOAT64_SCHEMA;
            case "json":
                return SchemaBuilder.string().name("io.debezium.data.Json").optional().build();
            case "string":
                return Schema.OPTIONAL_STRING_SCHEMA;
            default:
                return Schema.OPTIONAL_BYTES_SCHEMA; // always null
        }
    }

    /** Whether a message has the prefix of events. */
    boolean isEvent(Object value) {
        if (!(value instanceof Struct) || ((Struct) value).schema().field("message") == null) {
            return false;
        }
        Struct message = ((Struct) value).getStruct("message");
        return message != null && prefix.equals(message.getString("prefix"));
    }

    /** The insert that a message stands for; null if it does not say one. */
    Struct event(Struct value) {
        JsonNode found;
        try {
            found = json.readTree(bytes(value.getStruct("message").get("content")));
        } catch (IOException | StackOverflowError error) {
            return null;
        }
        if (found == null || !found.isObject()) {
            return null;
        }
        for (String name : required) {
            if (!found.hasNonNull(name)) {
                return null;
            }
        }
        Struct after = new Struct(row);
        Iterator<Map.Entry<String, JsonNode>> fields = found.fields();
        while (fields.hasNext()) {
            Map.Entry<String, JsonNode> one = fields.next();
            Field field = row.field(one.getKey());
            if (field == null) {
                return null;
            }
            if (one.getValue().isNull()) {
                continue;
            }
            Object put = value(field.schema(), one.getValue());
            // Half a character has no UTF-8: the converter would fail, and the task with it.
            if (put == null || put instanceof String && !WHOLE.newEncoder().canEncode((String) put)) {
                return null;
            }
            after.put(field, put);
        }
        return envelope(value.getStruct("source"), after, value.getInt64("ts_ms"));
    }

    private static byte[] bytes(Object content) {
        if (content instanceof ByteBuffer) {
            ByteBuffer buffer = ((ByteBuffer) content).duplicate();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return bytes;
        }
        return content == null ? new byte[0] : (byte[]) content;
    }

    /** A value as Debezium has it in a row; null if it is of another type. */
    private static Object value(Schema schema, JsonNode node) {
        switch (schema.type()) {
            case STRING:
                if (schema.name() != null) {
                    return node.toString(); // JSON in JSON
                }
                if (node.isNumber()) {
                    return digits(node);
                }
                return node.isTextual() ? node.asText() : node.isContainerNode() ? node.toString() : null;
            case BOOLEAN:
                return node.isBoolean() ? node.booleanValue() : null;
            case INT16:
                return whole(node) && node.canConvertToInt() && node.intValue() == (short) node.intValue()
                        ? (short) node.intValue()
                        : null;
            case INT32:
                return whole(node) && node.canConvertToInt() ? node.intValue() : null;
            case INT64:
                return whole(node) && node.canConvertToLong() ? node.longValue() : null;
            case FLOAT32:
                return node.isNumber() ? node.floatValue() : null;
            case FLOAT64:
                return node.isNumber() ? node.doubleValue() : null;
            default:
                return null;
        }
    }

    /** A number as Postgres prints a numeric: without an exponent, unless it is beyond what a numeric holds. */
    private static String digits(JsonNode node) {
        BigDecimal number = node.decimalValue();
        return Math.abs((long) number.scale()) <= LARGEST_SCALE ? number.toPlainString() : node.asText();
    }

    private static boolean whole(JsonNode node) {
        return node.isIntegralNumber();
    }

    private Struct envelope(Struct source, Struct after, Long at) {
        Schema schema = envelopes.get(source.schema());
        if (schema == null) {
            if (envelopes.size() >= KNOWN_SCHEMAS) {
                envelopes.clear();
            }
            schema = SchemaBuilder.struct()
                    .name("headwater.outbox.Envelope")
                    .field("after", row)
                    .field("source", source.schema())
                    .field("op", Schema.STRING_SCHEMA)
                    .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
                    .build();
            envelopes.put(source.schema(), schema);
        }
        Struct of = new Struct(source.schema());
        for (Field field : source.schema().fields()) {
            of.put(field, source.get(field));
        }
        of.put("schema", schemaName).put("table", tableName);
        return new Struct(schema).put("after", after).put("source", of).put("op", "c").put("ts_ms", at);
    }
}
