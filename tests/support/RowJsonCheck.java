import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import headwater.connect.RowJsonConverter;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

/** Holds RowJsonConverter against Kafka's own, over values of all kinds; prints "same N" or what differs. */
public final class RowJsonCheck {
    private static final JsonConverter THEIRS = new JsonConverter();
    private static final RowJsonConverter OURS = new RowJsonConverter();
    private static int compared;

    public static void main(String[] args) throws Exception {
        Map<String, String> settings = Map.of("schemas.enable", "false", "replace.null.with.default", "false");
        THEIRS.configure(settings, false);
        OURS.configure(settings, false);
        Random random = new Random(Long.parseLong(args.length > 0 ? args[0] : "1"));
        for (int round = 0; round < 2_000; round++) {
            Schema schema = schema(random, 0);
            Object value = value(random, schema);
            same(schema, value);
        }
        same(null, null);
        same(Decimal.builder(2).build(), new BigDecimal("1.25"));
        Schema priced = SchemaBuilder.struct().field("price", Decimal.builder(2).optional().build()).build();
        same(priced, new Struct(priced).put("price", new BigDecimal("-0.01")));
        events(random);
        refused();
        System.out.println("same " + compared);
    }

    private static void same(Schema schema, Object value) {
        byte[] theirs = THEIRS.fromConnectData("t", schema, value);
        for (int again = 0; again < 2; again++) { // the second time the schema is known
            differ(theirs, OURS.fromConnectData("t", null, schema, value));
        }
    }

    private static void differ(byte[] theirs, byte[] ours) {
        compared++;
        if (!Arrays.equals(theirs, ours)) {
            throw new IllegalStateException(
                    "theirs " + new String(theirs, StandardCharsets.UTF_8) + "\nours   " + new String(ours, StandardCharsets.UTF_8));
        }
    }

    private static void events(Random random) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        Schema row = SchemaBuilder.struct().name("p.public.t.Value").optional()
                .field("id", Schema.INT64_SCHEMA)
                .field("op", Schema.OPTIONAL_STRING_SCHEMA) // columns may be called as the event's own fields are
                .field("before", SchemaBuilder.string().optional().defaultValue("d").build()).build();
        SchemaBuilder source = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source");
        for (String name : List.of("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table")) {
            source.field(name, Schema.OPTIONAL_STRING_SCHEMA);
        }
        for (String name : List.of("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin")) {
            source.field(name, Schema.OPTIONAL_INT64_SCHEMA);
        }
        Schema where = source.build();
        Schema event = SchemaBuilder.struct().name("p.public.t.Envelope")
                .field("before", row).field("after", row).field("source", where)
                .field("transaction", Schema.OPTIONAL_STRING_SCHEMA).field("op", Schema.STRING_SCHEMA)
                .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();
        for (int round = 0; round < 200; round++) {
            Struct after = (Struct) value(random, row);
            Struct told = new Struct(event).put("after", after).put("source", value(random, where));
            told.put("op", "u").put("ts_ms", random.nextLong()).put("before", random.nextBoolean() ? after : null);
            ObjectNode whole = (ObjectNode) mapper.readTree(THEIRS.fromConnectData("t", event, told));
            whole.retain(Set.of("after", "source", "op"));
            ((ObjectNode) whole.get("source"))
                    .retain(Set.of("schema", "table", "lsn", "sequence", "snapshot", "ts_ms", "txId"));
            differ(mapper.writeValueAsBytes(whole), OURS.fromConnectData("t", event, told));
        }
        Schema alike = SchemaBuilder.struct().name("p.some.Envelope").field("op", Schema.STRING_SCHEMA).build();
        same(alike, new Struct(alike).put("op", "of no row"));
    }

    private static void refused() {
        Schema schema = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).build();
        Schema other = SchemaBuilder.struct().field("id", Schema.INT32_SCHEMA).build();
        for (Struct wrong : List.of(new Struct(schema), new Struct(other).put("id", 1))) {
            try {
                OURS.fromConnectData("t", schema, wrong);
            } catch (DataException expected) {
                compared++;
                continue;
            }
            throw new IllegalStateException("written though it must not be: " + wrong);
        }
    }

    private static Schema schema(Random random, int depth) {
        List<Schema.Type> types = new ArrayList<>(List.of(Schema.Type.values()));
        if (depth > 2) {
            types.removeAll(List.of(Schema.Type.STRUCT, Schema.Type.ARRAY, Schema.Type.MAP));
        }
        Schema.Type type = depth == 0 ? Schema.Type.STRUCT : types.get(random.nextInt(types.size()));
        SchemaBuilder made;
        if (type == Schema.Type.STRUCT) {
            made = SchemaBuilder.struct();
            for (int field = random.nextInt(6); field >= 0; field--) {
                made.field(text(random) + field, schema(random, depth + 1));
            }
        } else if (type == Schema.Type.ARRAY) {
            made = SchemaBuilder.array(schema(random, depth + 1));
        } else if (type == Schema.Type.MAP) {
            Schema key = random.nextInt(3) > 0 ? Schema.STRING_SCHEMA : Schema.INT32_SCHEMA;
            made = SchemaBuilder.map(key, schema(random, depth + 1));
        } else {
            made = new SchemaBuilder(type);
            if (type == Schema.Type.STRING && random.nextInt(3) == 0) {
                made.defaultValue("the default");
            }
        }
        return random.nextBoolean() ? made.optional().build() : made.build();
    }

    private static Object value(Random random, Schema schema) {
        if (schema.isOptional() && random.nextInt(4) == 0) {
            return null;
        }
        long bits = random.nextLong();
        double[] odd = {0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, 1e300, 0.1, 123456789.0, Double.longBitsToDouble(bits)};
        switch (schema.type()) {
            case INT8:
                return (byte) bits;
            case INT16:
                return (short) bits;
            case INT32:
                return (int) bits;
            case INT64:
                return bits;
            case FLOAT32:
                return (float) odd[random.nextInt(odd.length)];
            case FLOAT64:
                return odd[random.nextInt(odd.length)];
            case BOOLEAN:
                return random.nextBoolean();
            case STRING:
                return text(random);
            case BYTES:
                byte[] bytes = new byte[random.nextInt(200)];
                random.nextBytes(bytes);
                return random.nextBoolean() ? bytes : ByteBuffer.wrap(bytes);
            case ARRAY:
                List<Object> list = new ArrayList<>();
                for (int left = random.nextInt(4); left > 0; left--) {
                    list.add(value(random, schema.valueSchema()));
                }
                return list;
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                for (int left = random.nextInt(4); left > 0; left--) {
                    map.put(value(random, schema.keySchema()), value(random, schema.valueSchema()));
                }
                return map;
            default:
                Struct row = new Struct(schema);
                schema.fields().forEach(field -> row.put(field, value(random, field.schema())));
                return row;
        }
    }

    private static String text(Random random) {
        String kinds = "aZ09 _\"\\/\n\t\u0000\u001f\u007f\u00e9\u20ac\u2028\ud83d\ude00<>&'";
        StringBuilder made = new StringBuilder();
        for (int left = random.nextInt(30); left > 0; left--) {
            int at = random.nextInt(kinds.codePointCount(0, kinds.length()));
            made.appendCodePoint(kinds.codePointAt(kinds.offsetByCodePoints(0, at)));
        }
        return made.toString();
    }
}
