package penstock;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;

import scala.Option;

/** A new key group of a store that keeps its state in RocksDB: an empty database that becomes a version's snapshot. */
final class DatabaseWriter extends RowWriter {
    private static final String FAMILY = "default";

    private final RocksDBStateStoreProvider provider;
    private final RocksDB rocksDb;
    private final StateStore opened;
    private long rows;
    private boolean committed;

    DatabaseWriter(RocksDBStateStoreProvider provider, long version) throws Exception {
        this.provider = provider;
        // Spark opens a version only by loading it. The first one is empty; only its number has to be another.
        opened = (StateStore) PrivateMembers.call(
                provider, "getStore", new Object[] {Long.valueOf(0L), Option.empty()});
        rocksDb = provider.rocksDB();
        rocksDb.loadedVersion_$eq(version - 1);
    }

    @Override
    void add(UnsafeRow key, UnsafeRow value) {
        opened.put(key, value, FAMILY);
        rows++;
    }

    @Override
    String commit() throws Exception {
        PrivateMembers.set(rocksDb, "numKeysOnWritingVersion_$eq", rows);
        PrivateMembers.set(rocksDb, "numInternalKeysOnWritingVersion_$eq", 0L);
        opened.commit();
        committed = true;
        StateStoreCheckpointInfo info = opened.getStateStoreCheckpointInfo();
        Option<?> id = info.stateStoreCkptId();
        return rows + "\t" + (id.isDefined() ? id.get() : "");
    }

    @Override
    void close() {
        if (!committed) {
            opened.abort();
        }
        provider.close();
    }
}
