package headwater.connect;

import io.debezium.connector.postgresql.connection.Lsn;
import io.debezium.connector.postgresql.connection.ReplicationConnection;
import io.debezium.connector.postgresql.connection.ReplicationStream;
import io.debezium.connector.postgresql.connection.WalPositionLocator;
import io.debezium.connector.postgresql.spi.SlotCreationResult;
import java.sql.SQLException;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;

/** Debezium's connection to the slot; what comes through its stream is told to {@link Arrivals} and {@link Given}. */
final class Listening implements ReplicationConnection {
    // Looks in a row that may find nothing before there is a pause: in a load the next message is on its way.
    private static final int AT_ONCE = 5;

    private final ReplicationConnection connection;
    private final Arrivals arrivals;
    private final Given given;
    private final long pause;

    /** @param pause milliseconds between two looks that found nothing */
    Listening(ReplicationConnection connection, Arrivals arrivals, Given given, long pause) {
        this.connection = connection;
        this.arrivals = arrivals;
        this.given = given;
        this.pause = pause;
    }

    @Override
    public ReplicationStream startStreaming(WalPositionLocator locator) throws SQLException, InterruptedException {
        return new Stream(connection.startStreaming(locator));
    }

    @Override
    public ReplicationStream startStreaming(Lsn from, WalPositionLocator locator)
            throws SQLException, InterruptedException {
        return new Stream(connection.startStreaming(from, locator));
    }

    @Override
    public Optional<SlotCreationResult> createReplicationSlot() throws SQLException {
        return connection.createReplicationSlot();
    }

    @Override
    public void initConnection() throws SQLException, InterruptedException {
        connection.initConnection();
    }

    @Override
    public boolean isConnected() throws SQLException {
        return connection.isConnected();
    }

    @Override
    public void reconnect() throws SQLException {
        connection.reconnect();
    }

    @Override
    public void close() throws Exception {
        connection.close();
    }

    private final class Stream implements ReplicationStream {
        private final ReplicationStream stream;
        private int empty;

        private Stream(ReplicationStream stream) {
            this.stream = stream;
        }

        @Override
        public void read(ReplicationMessageProcessor processor) throws SQLException, InterruptedException {
            stream.read(noted(processor));
            arrivals.tell();
        }

        @Override
        public boolean readPending(ReplicationMessageProcessor processor) throws SQLException, InterruptedException {
            boolean found = stream.readPending(noted(processor));
            if (found) {
                empty = 0;
                arrivals.tell();
            } else if (++empty > AT_ONCE) {
                TimeUnit.MILLISECONDS.sleep(pause);
            }
            return found;
        }

        private ReplicationMessageProcessor noted(ReplicationMessageProcessor processor) {
            return message -> {
                given.note(message);
                processor.process(message);
            };
        }

        @Override
        public void flushLsn(Lsn lsn) throws SQLException {
            stream.flushLsn(lsn);
        }

        @Override
        public Lsn lastReceivedLsn() {
            return stream.lastReceivedLsn();
        }

        @Override
        public Lsn startLsn() {
            return stream.startLsn();
        }

        @Override
        public void startKeepAlive(ExecutorService service) {
            stream.startKeepAlive(service);
        }

        @Override
        public void stopKeepAlive() {
            stream.stopKeepAlive();
        }

        @Override
        public void close() throws Exception {
            stream.close();
        }
    }
}
