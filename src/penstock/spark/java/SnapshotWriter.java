package penstock;

import java.lang.reflect.Constructor;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** A new key group of a store that keeps its state in memory and in snapshots: an empty one at a version, then a snapshot. */
final class SnapshotWriter extends RowWriter {
    private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";
    static final String FAMILY = "default";

    private final HDFSBackedStateStoreProvider provider;
    private final long batch;
    private final StateStore opened;
    private long rows;
    private boolean committed;

    SnapshotWriter(HDFSBackedStateStoreProvider provider, long batch) throws Exception {
        this.provider = provider;
        this.batch = batch;
        // The provider opens a version only by loading it; there is none to load.
        Class<?> type = Class.forName(PACKAGE + "HDFSBackedStateStoreProvider$HDFSBackedStateStore", true,
                provider.getClass().getClassLoader());
        Constructor<?> constructor = type.getConstructors()[0];
        Object empty = PrivateMembers.get(provider, "createHDFSBackedStateStoreMap");
        opened = (StateStore) constructor.newInstance(
                new Object[] {provider, Long.valueOf(batch), empty, Boolean.TRUE});
    }

    @Override
    void add(UnsafeRow key, UnsafeRow value) {
        opened.put(key, value, FAMILY);
        rows++;
    }

    @Override
    String commit() throws Exception {
        opened.commit();
        committed = true;
        // Spark writes the changes, too. On top of the old group's versions they would be another state.
        Path folder = (Path) PrivateMembers.get(provider, "baseDir");
        provider.fm().delete(new Path(folder, (batch + 1) + ".delta"));
        return rows + "\t";
    }

    @Override
    void close() {
        if (!committed) {
            opened.abort();
        }
        provider.close();
    }
}
