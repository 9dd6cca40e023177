import io.debezium.jdbc.JdbcConfiguration;
import io.debezium.jdbc.JdbcConnection;
import io.debezium.pipeline.signal.SignalPayload;
import io.debezium.pipeline.signal.actions.snapshotting.SnapshotConfiguration;
import io.debezium.pipeline.source.snapshot.incremental.AbstractIncrementalSnapshotChangeEventSource;
import io.debezium.pipeline.source.snapshot.incremental.ChunkQueryBuilder;
import io.debezium.pipeline.source.snapshot.incremental.IncrementalSnapshotChangeEventSource;
import io.debezium.pipeline.source.snapshot.incremental.IncrementalSnapshotContext;
import io.debezium.pipeline.spi.OffsetContext;
import io.debezium.pipeline.spi.Partition;
import io.debezium.relational.RelationalDatabaseConnectorConfig;
import io.debezium.spi.schema.DataCollectionId;
import java.lang.reflect.Constructor;
import java.lang.reflect.Proxy;
import java.util.List;

/** What our class above Debezium's incremental snapshot does with a chunk at its end. Prints what was done, a word each. */
public final class ChunksCheck {
    private static boolean running;
    private static String chunk;

    public static void main(String[] args) throws Exception {
        running = true; // as the connector starts
        chunk = "first";
        report("begun-amid", chunks());
        running = false;
        IncrementalSnapshotChangeEventSource<Partition, DataCollectionId> asked = chunks();
        asked.addDataCollectionNamesToSnapshot(new SignalPayload<>(null, "", "", null, offset(), null), null);
        report("asked-for", asked);
        System.out.println();
    }

    private static void report(String what, IncrementalSnapshotChangeEventSource<Partition, DataCollectionId> chunks)
            throws Exception {
        System.out.print(" " + what);
        for (int time = 0; time < 2; time++) {
            chunks.closeWindow(null, chunk + "-close", offset());
        }
    }

    @SuppressWarnings("unchecked")
    private static IncrementalSnapshotChangeEventSource<Partition, DataCollectionId> chunks() throws Exception {
        Constructor<?> given = Class.forName("headwater.connect.Given").getDeclaredConstructor();
        Constructor<?> made = Class.forName("headwater.connect.Chunks").getDeclaredConstructors()[0];
        given.setAccessible(true);
        made.setAccessible(true);
        Database database = new Database();
        return (IncrementalSnapshotChangeEventSource<Partition, DataCollectionId>)
                made.newInstance(new Source(database), given.newInstance(), database);
    }

    private static OffsetContext offset() {
        Object context = stub(IncrementalSnapshotContext.class, "snapshotRunning", "currentChunkId", "openWindow");
        return (OffsetContext) Proxy.newProxyInstance(
                ChunksCheck.class.getClassLoader(), new Class<?>[] {OffsetContext.class}, (self, method, given) -> context);
    }

    private static Object stub(Class<?> type, String isRunning, String which, String opens) {
        return Proxy.newProxyInstance(ChunksCheck.class.getClassLoader(), new Class<?>[] {type}, (self, method, given) -> {
            if (method.getName().equals(isRunning)) {
                return running;
            }
            return method.getName().equals(which) ? chunk : method.getName().equals(opens) ? true : null;
        });
    }

    /** In which everything can be seen. */
    private static final class Database extends JdbcConnection {
        private Database() {
            super(JdbcConfiguration.empty(), config -> null, "\"", "\"");
        }

        @Override
        public JdbcConnection execute(String... statements) {
            return this;
        }

        @Override
        @SuppressWarnings("unchecked")
        public <T> T queryAndMap(String query, ResultSetMapper<T> mapper) {
            return (T) List.of();
        }

        @Override
        public <T extends DataCollectionId> ChunkQueryBuilder<T> chunkQueryBuilder(RelationalDatabaseConnectorConfig config) {
            return null;
        }
    }

    private static final class Source extends AbstractIncrementalSnapshotChangeEventSource<Partition, DataCollectionId> {
        private Source(JdbcConnection database) {
            super(null, database, null, null, null, null, null, null);
        }

        @Override
        public void addDataCollectionNamesToSnapshot(SignalPayload<Partition> signal, SnapshotConfiguration wanted) {
            running = true;
            chunk = "first";
        }

        @Override
        public void rereadChunk(Partition partition, OffsetContext offset) {
            System.out.print(":anew");
            chunk = "again";
        }

        @Override
        public void closeWindow(Partition partition, String id, OffsetContext offset) {
            System.out.print(":sent");
            chunk = "next";
        }

        @Override
        public void processMessage(Partition partition, DataCollectionId table, Object key, OffsetContext offset) {}

        @Override
        protected void emitWindowOpen(Partition partition, OffsetContext offset) {}

        @Override
        protected void emitWindowClose(Partition partition, OffsetContext offset) {}
    }
}
