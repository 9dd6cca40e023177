import headwater.connect.PostgresConnector;
import io.debezium.connector.base.ChangeEventQueue;
import io.debezium.connector.base.DefaultQueueProvider;
import io.debezium.connector.common.BaseSourceTask;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.pipeline.DataChangeEvent;
import io.debezium.util.LoggingContext;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * When our connector's task lets Debezium ask for its stored offsets; how soon it sees what came, and what its rest
 * costs (microseconds; of a second). Prints what was found, a word each.
 */
public final class QuietCheck {
    private static final PostgresConnector.Quiet TASK = new PostgresConnector.Quiet();
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();
    private static final int TIMES = 15;

    public static void main(String[] args) throws Exception {
        DefaultQueueProvider<DataChangeEvent> room = new DefaultQueueProvider<>();
        room.configure(Map.of("max.queue.size", "16"));
        ChangeEventQueue<DataChangeEvent> queue = new ChangeEventQueue.Builder<DataChangeEvent>()
                .pollInterval(Duration.ofMillis(1))
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
        waits(queue);
        System.out.println();
    }

    /** How long it takes to see a record that was told, and what looking for one that never comes costs. */
    private static void waits(ChangeEventQueue<DataChangeEvent> queue) throws Exception {
        Object arrivals = field(PostgresConnector.Quiet.class, "arrivals").get(TASK);
        Method tell = arrivals.getClass().getDeclaredMethod("tell");
        tell.setAccessible(true);
        long[] taken = new long[TIMES];
        for (int time = 0; time < TIMES; time++) {
            TASK.doPoll(); // at rest
            AtomicLong told = new AtomicLong();
            Thread reader = new Thread(() -> {
                try {
                    Thread.sleep(20);
                    queue.enqueue(new DataChangeEvent(new SourceRecord(Map.of(), Map.of(), "topic", null, null)));
                    told.set(System.nanoTime());
                    tell.invoke(arrivals);
                } catch (InterruptedException | ReflectiveOperationException error) {
                    throw new IllegalStateException(error);
                }
            });
            reader.start();
            int found = TASK.doPoll().size();
            reader.join();
            taken[time] = found == 1 ? (System.nanoTime() - told.get()) / 1_000 : Long.MAX_VALUE;
        }
        Arrays.sort(taken);
        long before = CPU.getCurrentThreadCpuTime(), until = System.nanoTime() + 2_000_000_000L;
        TASK.doPoll();
        while (System.nanoTime() < until) {
            TASK.doPoll();
        }
        long micros = (CPU.getCurrentThreadCpuTime() - before) / 1_000 / 2;
        System.out.print(" told:" + taken[TIMES / 2] + " rest:" + micros);
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
