package penstock.state;

import java.lang.reflect.Constructor;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** A new key group of an in-memory store with snapshots: an empty store at a version, committed as a snapshot. */
final class SnapshotWriter extends StoreWriter {
    private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";

    private final HDFSBackedStateStoreProvider provider;
    private final long batch;

    SnapshotWriter(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        super(provider, empty(provider, batch));
        this.provider = provider;
        this.batch = batch;
    }

    /** Creates an empty store by reflection: the provider can open a version only by loading it. */
    private static StateStore empty(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        Class<?> type = Class.forName(PACKAGE + "HDFSBackedStateStoreProvider$HDFSBackedStateStore", true,
                provider.getClass().getClassLoader());
        Constructor<?> constructor = type.getConstructors()[0];
        Object map = PrivateMembers.call(provider, "createHDFSBackedStateStoreMap");
        return (StateStore) constructor.newInstance(
                new Object[] {provider, Long.valueOf(batch), map, Boolean.TRUE});
    }

    @Override
    String commit() throws Exception {
        commitStore();
        // Spark also writes a delta, which would be wrong on top of the old group's versions.
        Path folder = (Path) PrivateMembers.call(provider, "baseDir");
        provider.fm().delete(new Path(folder, (batch + 1) + ".delta"));
        return rows + "\t";
    }
}
