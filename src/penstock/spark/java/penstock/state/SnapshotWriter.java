package penstock.state;

import java.lang.reflect.Constructor;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Writes a new key group of an in-memory store: adds rows to an empty store, and commits them as a snapshot. */
final class SnapshotWriter extends StoreWriter {
    private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";

    private final HDFSBackedStateStoreProvider provider;
    private final long batch;

    SnapshotWriter(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        super(provider, empty(provider, batch));
        this.provider = provider;
        this.batch = batch;
    }

    /** Creates an empty store by reflection: the provider could only load a version. TRUE forces a snapshot. */
    private static StateStore empty(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        Class<?> type = Class.forName(PACKAGE + "HDFSBackedStateStoreProvider$HDFSBackedStateStore", true,
                provider.getClass().getClassLoader());
        Constructor<?> constructor = type.getConstructors()[0];
        Object map = PrivateMembers.call(provider, "createHDFSBackedStateStoreMap");
        return (StateStore) constructor.newInstance(new Object[] {provider, Long.valueOf(batch), map, Boolean.TRUE});
    }

    @Override
    String commit() throws Exception {
        commitStore();
        // Spark also writes a delta to the empty store. In the checkpoint, it would follow the versions of the old group.
        Path folder = (Path) PrivateMembers.call(provider, "baseDir");
        provider.fm().delete(new Path(folder, (batch + 1) + ".delta"));
        return rows + "\t";
    }
}
