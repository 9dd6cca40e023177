import headwater.connect.PostgresConnector;
import io.debezium.connector.base.ChangeEventQueue;
import io.debezium.connector.base.DefaultQueueProvider;
import io.debezium.connector.common.BaseSourceTask;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.pipeline.DataChangeEvent;
import io.debezium.util.LoggingContext;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.connect.source.SourceRecord;

/** When our connector's task lets Debezium ask for its stored offsets; prints what was found, a word each. */
public final class QuietCheck {
    private static final PostgresConnector.Quiet TASK = new PostgresConnector.Quiet();

    public static void main(String[] args) throws Exception {
        DefaultQueueProvider<DataChangeEvent> room = new DefaultQueueProvider<>();
        room.configure(Map.of("max.queue.size", "16"));
        ChangeEventQueue<DataChangeEvent> queue = new ChangeEventQueue.Builder<DataChangeEvent>()
                .pollInterval(Duration.ofMillis(10))
                .pollDispatchInterval(Duration.ZERO)
                .maxBatchSize(8)
                .maxQueueSize(16)
                .maxQueueSizeInBytes(0)
                .queueProvider(room)
                .loggingContextSupplier(() -> LoggingContext.forConnector("check", "check", "check"))
                .build();
        field(PostgresConnectorTask.class, "queue").set(TASK, queue);
        System.out.print(new PostgresConnector().taskClass() == PostgresConnector.Quiet.class ? "ours" : "theirs");
        report("nothing");
        queue.enqueue(new DataChangeEvent(new SourceRecord(Map.of(), Map.of(), "topic", null, null)));
        report("record");
        report("nothing");
        System.out.println();
    }

    private static void report(String what) throws Exception {
        int found = TASK.doPoll().size();
        TASK.commit();
        boolean asks = ((AtomicBoolean) field(BaseSourceTask.class, "shouldPerformCommit").get(TASK)).getAndSet(false);
        System.out.print(" " + what + ":" + found + ":" + (asks ? "asks" : "rests"));
    }

    private static Field field(Class<?> type, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
