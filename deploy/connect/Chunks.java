package headwater.connect;

import io.debezium.jdbc.JdbcConnection;
import io.debezium.pipeline.signal.SignalPayload;
import io.debezium.pipeline.signal.actions.snapshotting.SnapshotConfiguration;
import io.debezium.pipeline.source.snapshot.incremental.AbstractIncrementalSnapshotChangeEventSource;
import io.debezium.pipeline.source.snapshot.incremental.IncrementalSnapshotChangeEventSource;
import io.debezium.pipeline.source.snapshot.incremental.IncrementalSnapshotContext;
import io.debezium.pipeline.spi.OffsetContext;
import io.debezium.pipeline.spi.Partition;
import io.debezium.spi.schema.DataCollectionId;
import java.util.List;
import java.util.Map;

/**
 * Debezium's incremental snapshot, whose chunks never stand above what is newer.
 *
 * <p>Debezium reads a chunk between two watermarks and leaves to the log what that has between them. A transaction that
 * the log has before the first one, and that could not be seen yet when the chunk was read, is not between them: its
 * rows would come once more as they were before it, and what it deleted would be there again.
 *
 * <p>So nothing is read before everyone can see what the log has given, and a chunk's window is open from the moment
 * when it is read: whatever is given later, be it before the first watermark, takes its rows out. If it can't be seen in
 * time the chunk is read and not sent, and read again at its end; the log is gone on with meanwhile.
 *
 * <p>One at a time: the first chunk is read by the thread of the signals, while another one reads the log.
 */
final class Chunks<P extends Partition, T extends DataCollectionId> implements IncrementalSnapshotChangeEventSource<P, T> {
    private final AbstractIncrementalSnapshotChangeEventSource<P, T> source;
    private final Given given;
    private final JdbcConnection connection;
    // The rows that wait for their window's end are those that can be sent. Not those of the chunk that Debezium has read
    // as the connector started amid a reading, before it asked for classes of ours: that one is read anew.
    private boolean sound;

    /** @param connection to the database, in which others do single statements at the most */
    Chunks(AbstractIncrementalSnapshotChangeEventSource<P, T> source, Given given, JdbcConnection connection) {
        this.source = source;
        this.given = given;
        this.connection = connection;
    }

    @Override
    public synchronized void addDataCollectionNamesToSnapshot(SignalPayload<P> signal, SnapshotConfiguration wanted)
            throws InterruptedException {
        if (!context(signal.offsetContext).snapshotRunning()) {
            sound = given.settled(connection);
        }
        source.addDataCollectionNamesToSnapshot(signal, wanted);
    }

    @Override
    public synchronized void processMessage(P partition, DataCollectionId table, Object key, OffsetContext offset)
            throws InterruptedException {
        IncrementalSnapshotContext<?> context = context(offset);
        if (context.snapshotRunning() && !context.deduplicationNeeded() && context.currentChunkId() != null) {
            context.openWindow(context.currentChunkId());
        }
        source.processMessage(partition, table, key, offset);
    }

    @Override
    public synchronized void closeWindow(P partition, String id, OffsetContext offset) throws InterruptedException {
        IncrementalSnapshotContext<?> context = context(offset);
        String chunk = context.currentChunkId();
        boolean ours = context.snapshotRunning() && chunk != null && id.startsWith(chunk);
        boolean send = sound;
        if (ours) {
            sound = given.settled(connection);
            if (!send) {
                context.openWindow(chunk);
                source.rereadChunk(partition, offset);
            }
        }
        if (send || chunk == null || chunk.equals(context.currentChunkId())) { // else it is read again
            source.closeWindow(partition, id, offset);
        }
    }

    @Override
    public synchronized void resumeSnapshot(P partition, OffsetContext offset) throws InterruptedException {
        sound &= given.settled(connection);
        source.resumeSnapshot(partition, offset);
    }

    @Override
    public synchronized void processSchemaChange(P partition, OffsetContext offset, DataCollectionId table)
            throws InterruptedException {
        source.processSchemaChange(partition, offset, table);
    }

    @Override
    public void pauseSnapshot(P partition, OffsetContext offset) throws InterruptedException {
        source.pauseSnapshot(partition, offset);
    }

    @Override
    public void init(P partition, OffsetContext offset) {
        source.init(partition, offset);
    }

    @Override
    public void requestStopSnapshot(P partition, OffsetContext offset, Map<String, Object> data, List<String> tables) {
        source.requestStopSnapshot(partition, offset, data, tables);
    }

    @Override
    public void processHeartbeat(P partition, OffsetContext offset) throws InterruptedException {
        source.processHeartbeat(partition, offset);
    }

    @Override
    public void processFilteredEvent(P partition, OffsetContext offset) throws InterruptedException {
        source.processFilteredEvent(partition, offset);
    }

    @Override
    public void processTransactionStartedEvent(P partition, OffsetContext offset) throws InterruptedException {
        source.processTransactionStartedEvent(partition, offset);
    }

    @Override
    public void processTransactionCommittedEvent(P partition, OffsetContext offset) throws InterruptedException {
        source.processTransactionCommittedEvent(partition, offset);
    }

    private static IncrementalSnapshotContext<?> context(OffsetContext offset) {
        return offset.getIncrementalSnapshotContext();
    }
}
