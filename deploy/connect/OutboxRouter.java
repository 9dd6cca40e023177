package headwater.connect;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Events that an application has written into its outbox table, or as messages in the log, each to its type's topic.
 *
 * <p>An insert, and a row that a snapshot reads, is an event: it goes to the topic of its aggregate's type with the
 * aggregate's id as key, so that one aggregate's events stay in order in one partition. Its value stays as it is: the
 * position of the event is in it. Updates, deletes and tombstones of the table are dropped, for an event that happened
 * does not change. What is of no known type goes to the topic for all others. Records of other topics pass by.
 */
public final class OutboxRouter implements Transformation<SourceRecord> {
    private static final int KNOWN_SCHEMAS = 100;
    private static final Set<String> EVENTS = Set.of("c", "r");

    private String table;
    private String messages;
    private String target;
    private String type;
    private String aggregate;
    private Set<String> types;
    private OutboxMessage parser;
    // A table's schema is one object for as long as the table stays as it is, and so the key's is, too.
    private final Map<Schema, Schema> keys = new IdentityHashMap<>();

    @Override
    public ConfigDef config() {
        ConfigDef.Importance high = ConfigDef.Importance.HIGH;
        ConfigDef.Importance low = ConfigDef.Importance.LOW;
        return new ConfigDef()
                .define("table.topic", ConfigDef.Type.STRING, high, "Topic that Debezium gives the outbox table.")
                .define("target", ConfigDef.Type.STRING, high, "Topic of all other types; '.type' after it for each.")
                .define("types", ConfigDef.Type.LIST, high, "Aggregate types that have a topic of their own.")
                .define("type.column", ConfigDef.Type.STRING, high, "Column of the aggregate's type.")
                .define("aggregate.column", ConfigDef.Type.STRING, high, "Column of the aggregate's id.")
                .define("id.column", ConfigDef.Type.STRING, "id", low, "Column of the event's id.")
                .define("message.topic", ConfigDef.Type.STRING, "", low, "Topic that Debezium gives messages.")
                .define("message.prefix", ConfigDef.Type.STRING, "", low, "Which of them are events; none if empty.")
                .define("message.table", ConfigDef.Type.STRING, "", low, "The table whose rows they stand for.")
                .define("message.columns", ConfigDef.Type.STRING, "{}", low, "Its columns: JSON, name -> type.")
                .define("message.forms", ConfigDef.Type.STRING, "{}", low, "Of its texts: JSON, name -> form.");
    }

    @Override
    public void configure(Map<String, ?> given) {
        Map<String, Object> settings = config().parse(new HashMap<>(given));
        table = (String) settings.get("table.topic");
        messages = (String) settings.get("message.topic");
        target = (String) settings.get("target");
        type = (String) settings.get("type.column");
        aggregate = (String) settings.get("aggregate.column");
        List<String> named = new ArrayList<>();
        for (Object one : (List<?>) settings.get("types")) {
            named.add((String) one);
        }
        types = Set.copyOf(named);
        String prefix = (String) settings.get("message.prefix");
        parser = prefix.isEmpty()
                ? null
                : new OutboxMessage(
                        prefix,
                        (String) settings.get("message.table"),
                        (String) settings.get("message.columns"),
                        (String) settings.get("message.forms"),
                        List.of((String) settings.get("id.column"), type, aggregate));
    }

    @Override
    public SourceRecord apply(SourceRecord record) {
        if (table.equals(record.topic())) {
            return routed(record, record.value());
        }
        if (parser == null || !messages.equals(record.topic()) || !parser.isEvent(record.value())) {
            return record;
        }
        Struct event = parser.event((Struct) record.value());
        // Nobody may lose it, and the worker must not stop for it: whoever reads it makes a dead letter of it.
        return event == null ? moved(record, target, record.keySchema(), record.key(), record.value())
                : routed(record, event);
    }

    private SourceRecord routed(SourceRecord record, Object value) {
        if (!(value instanceof Struct)) {
            return null; // a tombstone
        }
        Struct event = (Struct) value;
        Struct row = EVENTS.contains(event.getString("op")) ? event.getStruct("after") : null;
        if (row == null) {
            return null;
        }
        Object named = row.get(column(row, type));
        String topic = named != null && types.contains(named.toString()) ? target + "." + named : target;
        Field id = column(row, aggregate);
        Schema schema = keys.get(row.schema());
        if (schema == null) {
            if (keys.size() >= KNOWN_SCHEMAS) {
                keys.clear();
            }
            schema = SchemaBuilder.struct().name(target + ".Key").field(aggregate, id.schema()).build();
            keys.put(row.schema(), schema);
        }
        return moved(record, topic, schema, new Struct(schema).put(aggregate, row.get(id)), event);
    }

    private Field column(Struct row, String name) {
        Field found = row.schema().field(name);
        if (found == null) {
            // Without it nobody knows whose event it is, and events of one aggregate would overtake each other.
            throw new DataException("the outbox table has no column " + name + " any more: correct source.outbox in the"
                    + " pipeline file and run `headwater apply`, which goes on from here; nothing was skipped");
        }
        return found;
    }

    private static SourceRecord moved(SourceRecord record, String topic, Schema keySchema, Object key, Object value) {
        Schema schema = value instanceof Struct ? ((Struct) value).schema() : record.valueSchema();
        return record.newRecord(
                topic, record.kafkaPartition(), keySchema, key, schema, value, record.timestamp(), record.headers());
    }

    @Override
    public void close() {}
}
