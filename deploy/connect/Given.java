package headwater.connect;

import io.debezium.connector.postgresql.connection.ReplicationMessage;
import io.debezium.jdbc.JdbcConnection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The transactions that the log has given last, and whether everyone can see them.
 *
 * <p>Postgres writes a transaction's end into its log first and lets others see it afterwards: microseconds later,
 * some milliseconds on a machine that is short of processors, and with a synchronous standby when that has answered.
 */
final class Given {
    // As many may end between one that was given and its being seen: at 10,000 a second, more than six seconds. Half a MB.
    private static final int KEPT = 1 << 16;
    // Nothing else is read from the log meanwhile; whoever has waited in vain looks again when more of it has been read.
    // Each time in a row that it was in vain the wait is twice as long: a standby that is always slow is waited for.
    private static final long WAIT_MILLIS = 500, LONGEST_MILLIS = 8_000, LOOK_MILLIS = 1;
    // A snapshot names none that is newer than the last one that has ended. This one ends before it is asked for, is
    // newer than all that were given, and writes nothing that a standby would be waited for with.
    private static final String END_ONE = "SELECT pg_current_xact_id()";
    private static final String UNDER_WAY = "SELECT pg_snapshot_xip(pg_current_snapshot())::text::bigint";
    private static final long EPOCH = 0xFFFF_FFFFL;
    private static final Logger LOG = LoggerFactory.getLogger(Given.class);

    private final long[] last = new long[KEPT];
    private int count;
    private long wait = WAIT_MILLIS;

    /** Called with each message of the log, before anything is done with it. */
    synchronized void note(ReplicationMessage message) {
        long transaction = message.getTransactionId().orElse(0);
        if (transaction != 0 && (count == 0 || last[(count - 1) % KEPT] != transaction)) {
            last[count % KEPT] = transaction;
            count = count == 2 * KEPT - 1 ? KEPT : count + 1;
        }
    }

    /**
     * Waits until what was given can be seen: for half a second at most, and longer if that was in vain before.
     *
     * @param connection to the database; a transaction of its own is ended
     * @return false if it can't, or if nobody can tell: what is read now may be older than what was given
     */
    boolean settled(JdbcConnection connection) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(wait);
        wait = Math.min(2 * wait, LONGEST_MILLIS);
        try {
            connection.execute(END_ONE);
            while (true) {
                Optional<Long> hidden = first(connection.queryAndMap(UNDER_WAY, Given::numbers));
                if (hidden.isEmpty()) {
                    wait = WAIT_MILLIS;
                    return true;
                }
                if (System.nanoTime() > end) {
                    LOG.warn("Transaction {} is in the log and can't be seen yet (does a synchronous standby answer?): "
                            + "rows that are read now are not sent, and read again", hidden.get());
                    return false;
                }
                TimeUnit.MILLISECONDS.sleep(LOOK_MILLIS);
            }
        } catch (SQLException error) {
            LOG.warn("What is under way can't be asked for; asked again before the next rows are sent", error);
            reconnect(connection);
            TimeUnit.MILLISECONDS.sleep(WAIT_MILLIS);
            return false;
        }
    }

    private static List<Long> numbers(ResultSet rows) throws SQLException {
        List<Long> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getLong(1) & EPOCH);
        }
        return found;
    }

    private synchronized Optional<Long> first(List<Long> underWay) {
        int kept = Math.min(count, KEPT);
        for (long transaction : underWay) {
            for (int i = 0; i < kept; i++) {
                if (last[i] == transaction) {
                    return Optional.of(transaction);
                }
            }
        }
        return Optional.empty();
    }

    private static void reconnect(JdbcConnection connection) {
        try {
            connection.close();
        } catch (SQLException error) {
            LOG.debug("The connection was closed already", error);
        }
    }
}
