package headwater.connect;

import io.debezium.bean.StandardBeanNames;
import io.debezium.bean.spi.BeanRegistry;
import io.debezium.config.CommonConnectorConfig;
import io.debezium.jdbc.JdbcConnection;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.pipeline.EventDispatcher;
import io.debezium.pipeline.signal.actions.SignalAction;
import io.debezium.pipeline.signal.actions.SignalActionProvider;
import io.debezium.pipeline.source.snapshot.incremental.AbstractIncrementalSnapshotChangeEventSource;
import io.debezium.pipeline.spi.Partition;
import io.debezium.spi.schema.DataCollectionId;
import java.util.Map;
import java.util.Optional;

/**
 * Puts {@link Chunks} in place of Debezium's own incremental snapshot.
 *
 * <p>Debezium asks for signals of others' when it has made its own, and before it reads the log: the one moment at which
 * a class of ours is given what hands out the log's changes.
 */
public final class ChunksProvider implements SignalActionProvider {
    static final String GIVEN = "headwater-given";

    @Override
    public <P extends Partition> Map<String, SignalAction<P>> createActions(
            EventDispatcher<P, ? extends DataCollectionId> dispatcher,
            ChangeEventSourceCoordinator<P, ?> coordinator,
            CommonConnectorConfig config) {
        BeanRegistry beans = config.getBeanRegistry();
        Given given = beans.lookupByName(GIVEN, Given.class); // not there for a connector of Debezium's own class
        if (given != null
                && dispatcher.getIncrementalSnapshotChangeEventSource()
                        instanceof AbstractIncrementalSnapshotChangeEventSource<P, ?> source) {
            JdbcConnection connection = beans.lookupByName(StandardBeanNames.JDBC_CONNECTION, JdbcConnection.class);
            dispatcher.setIncrementalSnapshotChangeEventSource(Optional.of(new Chunks<>(source, given, connection)));
        }
        return Map.of();
    }
}
