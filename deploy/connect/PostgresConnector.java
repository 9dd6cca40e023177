package headwater.connect;

import io.debezium.config.CommonConnectorConfig;
import io.debezium.config.Configuration;
import io.debezium.connector.common.CdcSourceTaskContext;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.connector.postgresql.PostgresPartition;
import io.debezium.connector.postgresql.PostgresSchema;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.connector.postgresql.connection.ReplicationConnection;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import java.sql.SQLException;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's connector, at rest where its database is, and awake when something comes.
 *
 * <p>Debezium answers Connect with an empty list when it has found nothing, a hundred times a second with
 * {@code poll.interval.ms=10}. With {@code transaction.boundary=poll} Connect calls the task's {@code commit()} after
 * each answer, and Debezium then asks Connect for its stored offsets before it polls again. Connect reads its offset
 * topic to the end for that: fifty requests to the broker a second for nothing, 40 % of what an idle worker uses.
 *
 * <p>So {@code commit()} is passed on only after records. Nothing else hangs on it: Debezium confirms to the slot what
 * the stored offsets say, and those change with records alone; heartbeats are records, too.
 *
 * <p>Of what was left, four fifths were Debezium's queue. Whoever polls it waits for the whole interval even if a record
 * lies there, in whole milliseconds, and from the last whole one on it spins until the clock shows the next. So the
 * queue's interval is as short as can be, and the queue is asked when Postgres has sent something.
 *
 * <p>And tables are read again by {@link Chunks}.
 */
public final class PostgresConnector extends io.debezium.connector.postgresql.PostgresConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return Quiet.class;
    }

    /** The task; Connect makes it by its constructor without arguments. */
    public static final class Quiet extends PostgresConnectorTask {
        private static final int QUEUE_MILLIS = 1;
        // What does not come with a message of Postgres's (a snapshot's first rows, heartbeats, an error of the thread that
        // reads) is seen after so long, and so is Connect's wish to stop.
        private static final long REST_MILLIS = 100;
        // Who writes all the time gets his records gathered for so long, as Debezium does at 10 ms: each answer is a
        // transaction of Kafka's. All the time is: less than so long behind the last answer.
        private static final long GATHER_MILLIS = 9, BUSY_NANOS = 30_000_000;
        // A wait of a millisecond that begins so late in one ends in the next but one: there is nothing to spin for.
        private static final long LATE_NANOS = 700_000, MILLI_NANOS = 1_000_000;

        private final Arrivals arrivals = new Arrivals();
        private final Given given = new Given();
        private int largest = Integer.MAX_VALUE;
        private long pause;
        // How many records the last answer had; and when Connect had handed on the last one with any.
        private int found;
        private long last = System.nanoTime() - BUSY_NANOS;
        // Both are called by the task's thread; without exactly-once commit() is called by another one, and may then
        // find an answer that is not stored yet: what it holds is confirmed after the next records instead.
        private volatile boolean handed;

        @Override
        public CdcSourceTaskContext<PostgresConnectorConfig> preStart(Configuration config) {
            return super.preStart(prompt(config));
        }

        @Override
        public ChangeEventSourceCoordinator<PostgresPartition, PostgresOffsetContext> start(Configuration config) {
            // Debezium looks five times in a row before it sleeps; at rest ours looks once, twice as often.
            pause = Math.max(1, config.getLong(CommonConnectorConfig.POLL_INTERVAL_MS) / 2);
            largest = config.getInteger(CommonConnectorConfig.MAX_BATCH_SIZE);
            return super.start(prompt(config));
        }

        private static Configuration prompt(Configuration config) {
            return config.edit().with(CommonConnectorConfig.POLL_INTERVAL_MS, QUEUE_MILLIS).build();
        }

        @Override
        protected ReplicationConnection buildReplicationConnection(
                PostgresConnection connection, PostgresSchema schema, PostgresConnectorConfig config) throws SQLException {
            config.getBeanRegistry().add(ChunksProvider.GIVEN, given);
            return new Listening(super.buildReplicationConnection(connection, schema, config), arrivals, given, pause);
        }

        @Override
        public List<SourceRecord> doPoll() throws InterruptedException {
            if (found == 0) {
                arrivals.await(REST_MILLIS);
            } else {
                last = System.nanoTime();
            }
            if (System.nanoTime() - last < BUSY_NANOS && found < largest) {
                TimeUnit.MILLISECONDS.sleep(GATHER_MILLIS);
            }
            arrivals.forget();
            LockSupport.parkNanos(LATE_NANOS - Instant.now().getNano() % MILLI_NANOS);
            List<SourceRecord> records = super.doPoll();
            found = records == null ? 0 : records.size();
            handed |= found > 0;
            return records;
        }

        @Override
        public void commit() throws InterruptedException {
            if (handed) {
                handed = false;
                super.commit();
            }
        }
    }
}
