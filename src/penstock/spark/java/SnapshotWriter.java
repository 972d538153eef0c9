package penstock;

import java.lang.reflect.Constructor;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** A new key group of a store that keeps its state in memory and in snapshots: an empty one at a version, then a snapshot. */
final class SnapshotWriter extends StoreWriter {
    private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";

    private final HDFSBackedStateStoreProvider provider;
    private final long batch;

    SnapshotWriter(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        super(provider, empty(provider, batch));
        this.provider = provider;
        this.batch = batch;
    }

    /** The provider opens a version only by loading it; there is none to load. */
    private static StateStore empty(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        Class<?> type = Class.forName(PACKAGE + "HDFSBackedStateStoreProvider$HDFSBackedStateStore", true,
                provider.getClass().getClassLoader());
        Constructor<?> constructor = type.getConstructors()[0];
        Object map = PrivateMembers.get(provider, "createHDFSBackedStateStoreMap");
        return (StateStore) constructor.newInstance(
                new Object[] {provider, Long.valueOf(batch), map, Boolean.TRUE});
    }

    @Override
    String commit() throws Exception {
        long rows = commitStore();
        // Spark writes the changes, too. On top of the old group's versions they would be another state.
        Path folder = (Path) PrivateMembers.get(provider, "baseDir");
        provider.fm().delete(new Path(folder, (batch + 1) + ".delta"));
        return rows + "\t";
    }
}
