package headwater.connect;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.format.DateTimeParseException;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
    // Of a numeric in Postgres, digits behind the point and before it; the zeros of 1e999999999 would be a gigabyte.
    private static final int LARGEST_SCALE = 16_383;
    private static final int MOST_DIGITS = 131_072;
    private static final int LONGEST_NUMBER = MOST_DIGITS + LARGEST_SCALE + 2; // with a sign and a point
    // What Debezium says of them in a row.
    private static final Map<String, String> NO_NUMBERS =
            Map.of("NaN", "NAN", "Infinity", "POSITIVE_INFINITY", "-Infinity", "NEGATIVE_INFINITY");
    private static final Pattern NUMERIC = Pattern.compile("numeric(?:\\(([0-9]+),(-?[0-9]+)\\))?");
    private static final Set<String> INFINITE = Set.of("infinity", "-infinity");
    private static final Pattern MOMENT = Pattern.compile(
            "((?:[+-][0-9]{4,6}|[0-9]{4})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\\.[0-9]{1,9})?)Z");
    // Postgres's own first moment and last year.
    private static final LocalDateTime FIRST = LocalDateTime.of(-4713, 11, 24, 0, 0);
    private static final int LAST_YEAR = 294_276;
    private static final Charset WHOLE = StandardCharsets.UTF_8;

    // Jackson reads numbers of up to 1,000 characters unless it is told otherwise.
    private final JsonFactory factory = JsonFactory.builder()
            .streamReadConstraints(
                    StreamReadConstraints.builder().maxNumberLength(LONGEST_NUMBER).build())
            .build();
    private final ObjectMapper json = JsonMapper.builder(factory)
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
    // Columns whose text has a form of its own, and which: numeric, numeric(precision,scale) or timestamptz.
    private final Map<String, String> checked = new HashMap<>();
    // By the schema of the messages' source, which is one object.
    private final Map<Schema, Schema> envelopes = new IdentityHashMap<>();

    /**
     * @param prefix of the messages that are meant
     * @param table schema.table
     * @param columns of the table: a JSON object, name -> string, json, boolean, int16, int32, int64, float, double; the
     *     type of a column that a message can't give is empty
     * @param forms of columns of type string, which not every text fits: a JSON object, name -> numeric,
     *     numeric(precision,scale), timestamptz
     * @param required those without which there is no event
     */
    OutboxMessage(String prefix, String table, String columns, String forms, List<String> required) {
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
            json.readTree(forms).fields().forEachRemaining(one -> checked.put(one.getKey(), one.getValue().asText()));
        } catch (JsonProcessingException error) {
            throw new ConnectException("message.columns or message.forms is not JSON: " + error.getOriginalMessage(), error);
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
            Object put = value(field.schema(), checked.getOrDefault(field.name(), ""), one.getValue());
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

    /** A value as Debezium has it in a row; null if it is of another type, or its column has no such value. */
    private static Object value(Schema schema, String form, JsonNode node) {
        switch (schema.type()) {
            case STRING:
                return schema.name() != null ? node.toString() : text(form, node); // JSON in JSON
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
                return fits(node, node.floatValue()) ? node.floatValue() : null;
            case FLOAT64:
                return fits(node, node.doubleValue()) ? node.doubleValue() : null;
            default:
                return null;
        }
    }

    /** Whether a number is neither too large for what became of it nor too small, as Postgres has it. */
    private static boolean fits(JsonNode node, double made) {
        return node.isNumber() && Double.isFinite(made) && (made != 0 || node.decimalValue().signum() == 0);
    }

    private static String text(String form, JsonNode node) {
        if (form.equals("timestamptz")) {
            return node.isTextual() && isMoment(node.asText()) ? node.asText() : null;
        }
        Matcher limits = NUMERIC.matcher(form);
        if (limits.matches()) {
            return node.isNumber() || node.isTextual() ? numeric(limits, node) : null;
        }
        if (node.isNumber()) {
            return digits(node.decimalValue());
        }
        return node.isTextual() ? node.asText() : node.isContainerNode() ? node.toString() : null;
    }

    private static boolean isMoment(String text) {
        Matcher found = MOMENT.matcher(text);
        if (!found.matches()) {
            return INFINITE.contains(text);
        }
        try {
            LocalDateTime moment = LocalDateTime.parse(found.group(1));
            return !moment.isBefore(FIRST) && moment.getYear() <= LAST_YEAR;
        } catch (DateTimeParseException error) {
            return false;
        }
    }

    /** As Postgres casts a number to the column's type; null where it would refuse to. */
    private static String numeric(Matcher limits, JsonNode node) {
        boolean limited = limits.group(1) != null;
        String word = node.isTextual() ? NO_NUMBERS.get(node.asText()) : null;
        if (word != null) {
            return limited && !word.equals("NAN") ? null : word; // of so many digits, NaN is one and infinity is none
        }
        BigDecimal number = node.isTextual() ? number(node.asText()) : node.decimalValue();
        if (number == null || digits(number) == null) { // first: what rounds 1e-999999999 makes room for its zeros
            return null;
        }
        if (!limited) {
            return digits(number);
        }
        int scale = Integer.parseInt(limits.group(2));
        BigDecimal rounded = number.setScale(scale, RoundingMode.HALF_UP);
        return rounded.precision() <= Integer.parseInt(limits.group(1)) ? rounded.toPlainString() : null;
    }

    private static BigDecimal number(String text) {
        if (text.length() > LONGEST_NUMBER) { // longer ones take long to read
            return null;
        }
        try {
            return new BigDecimal(text);
        } catch (NumberFormatException error) {
            return null;
        }
    }

    /** A number as Postgres prints a numeric, without an exponent; null if it is beyond what a numeric holds. */
    private static String digits(BigDecimal number) {
        long before = (long) number.precision() - number.scale();
        return number.scale() <= LARGEST_SCALE && before <= MOST_DIGITS ? number.toPlainString() : null;
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
