package headwater.connect;

import io.apicurio.registry.utils.converter.AvroConverter;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.storage.Converter;

/**
 * Apicurio's Avro converter, for rows as they are.
 *
 * <p>Alone it writes a column's DEFAULT where the row has NULL (its switch against that can't be set), and fails on a
 * column whose name is no name in Avro. So schemas lose their defaults here, and names are escaped: a character that
 * Avro does not take becomes {@code _uXXXX}, and so does an underscore that would read as the beginning of one.
 * cdc/records/debezium_avro.py reads them back. Everything else is Apicurio's.
 */
public final class RowAvroConverter implements Converter {
    private static final int KNOWN_SCHEMAS = 2_000;

    private final AvroConverter<Object> writer = new AvroConverter<>();
    // A table's schema is one object for as long as the table stays as it is.
    private final Map<Schema, Schema> plain =
            Collections.synchronizedMap(
                    new LinkedHashMap<>(16, 0.75f, true) {
                        @Override
                        protected boolean removeEldestEntry(Map.Entry<Schema, Schema> eldest) {
                            return size() > KNOWN_SCHEMAS;
                        }
                    });

    @Override
    public void configure(Map<String, ?> settings, boolean isKey) {
        writer.configure(settings, isKey);
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        if (schema == null || value == null) {
            return null; // a tombstone
        }
        Schema wanted = plain.get(schema);
        if (wanted == null) {
            wanted = plainOf(schema);
            plain.put(schema, wanted);
        }
        return writer.fromConnectData(topic, wanted, moved(value, schema, wanted));
    }

    @Override
    public byte[] fromConnectData(String topic, Headers headers, Schema schema, Object value) {
        return fromConnectData(topic, schema, value);
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return writer.toConnectData(topic, value);
    }

    /** The schema without defaults and with escaped field names. */
    static Schema plainOf(Schema schema) {
        SchemaBuilder builder;
        switch (schema.type()) {
            case STRUCT:
                builder = SchemaBuilder.struct();
                for (Field field : schema.fields()) {
                    builder.field(escaped(field.name()), plainOf(field.schema()));
                }
                break;
            case ARRAY:
                builder = SchemaBuilder.array(plainOf(schema.valueSchema()));
                break;
            case MAP:
                builder = SchemaBuilder.map(plainOf(schema.keySchema()), plainOf(schema.valueSchema()));
                break;
            default:
                builder = new SchemaBuilder(schema.type());
        }
        if (schema.name() != null) {
            builder.name(schema.name());
        }
        if (schema.version() != null) {
            builder.version(schema.version());
        }
        if (schema.parameters() != null) {
            builder.parameters(schema.parameters());
        }
        return schema.isOptional() ? builder.optional().build() : builder.build();
    }

    /** The value as one of the other schema: fields stand in the same order in both. */
    private static Object moved(Object value, Schema from, Schema to) {
        if (from.type() != Schema.Type.STRUCT || value == null) {
            return value; // no struct stands in an array or a map of Debezium's that has a default
        }
        Struct row = (Struct) value;
        Struct out = new Struct(to);
        for (Field field : from.fields()) {
            Field target = to.fields().get(field.index());
            out.put(target, moved(row.getWithoutDefault(field.name()), field.schema(), target.schema()));
        }
        return out;
    }

    static String escaped(String name) {
        StringBuilder out = new StringBuilder(name.length());
        for (int at = 0; at < name.length(); at++) {
            char c = name.charAt(at);
            boolean letter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' && !looksEscaped(name, at);
            if (letter || at > 0 && c >= '0' && c <= '9') {
                out.append(c);
            } else {
                out.append(String.format("_u%04x", (int) c));
            }
        }
        return out.toString();
    }

    private static boolean looksEscaped(String name, int at) {
        return name.regionMatches(at, "_u", 0, 2) && name.substring(at + 2).matches("(?s)[0-9a-f]{4}.*");
    }
}
