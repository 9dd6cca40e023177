import headwater.connect.OutboxRouter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What OutboxRouter makes of messages, one a line of a file: of each a line with the row's column {@code v}, or that it is no event.
 *
 * <p>Arguments: the file, the kind of {@code v}, the form of its text or nothing.
 */
public final class OutboxCheck {
    private static final Schema SOURCE = SchemaBuilder.struct()
            .field("schema", Schema.OPTIONAL_STRING_SCHEMA).field("table", Schema.OPTIONAL_STRING_SCHEMA).build();
    private static final Schema MESSAGE = SchemaBuilder.struct()
            .field("prefix", Schema.STRING_SCHEMA).field("content", Schema.BYTES_SCHEMA).build();
    private static final Schema EVENT = SchemaBuilder.struct()
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .field("source", SOURCE).field("message", MESSAGE).build();

    public static void main(String[] args) throws Exception {
        OutboxRouter router = new OutboxRouter();
        Map<String, String> settings = new HashMap<>(Map.of(
                "table.topic", "p.public.outbox", "target", "p-events", "types", "", "type.column", "type",
                "aggregate.column", "about", "message.topic", "p.message", "message.prefix", "shop",
                "message.table", "public.outbox"));
        settings.put("message.columns",
                "{\"id\":\"string\",\"type\":\"string\",\"about\":\"string\",\"v\":\"" + args[1] + "\"}");
        if (args.length > 2) {
            settings.put("message.forms", "{\"v\":\"" + args[2] + "\"}");
        }
        router.configure(settings);
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String content = "{\"id\":\"1\",\"type\":\"t\",\"about\":\"a\",\"v\":" + line + "}";
            Struct message = new Struct(MESSAGE)
                    .put("prefix", "shop").put("content", content.getBytes(StandardCharsets.UTF_8));
            Struct event = new Struct(EVENT)
                    .put("op", "m").put("ts_ms", 1L).put("source", new Struct(SOURCE)).put("message", message);
            SourceRecord made = router.apply(new SourceRecord(null, null, "p.message", EVENT, event));
            Struct told = (Struct) made.value();
            System.out.println(told.schema() == EVENT ? "no event" : told.getStruct("after").get("v"));
        }
    }
}
