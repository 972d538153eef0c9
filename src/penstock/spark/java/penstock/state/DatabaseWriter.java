package penstock.state;

import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;

import scala.Option;

/** A new key group of a RocksDB state store: an empty database that becomes the snapshot of a version. */
final class DatabaseWriter extends StoreWriter {
    private final RocksDB rocksDb;

    DatabaseWriter(RocksDBStateStoreProvider provider, long version) throws Exception {
        super(provider, empty(provider));
        rocksDb = provider.rocksDB();
        rocksDb.loadedVersion_$eq(version - 1);
    }

    /** Opens version 0, which is empty, as Spark can only load versions; the constructor then sets the number. */
    private static StateStore empty(RocksDBStateStoreProvider provider) throws Exception {
        return (StateStore) PrivateMembers.call(provider, "getStore", 0L, Option.empty());
    }

    @Override
    String commit() throws Exception {
        PrivateMembers.call(rocksDb, "numKeysOnWritingVersion_$eq", rows);
        PrivateMembers.call(rocksDb, "numInternalKeysOnWritingVersion_$eq", 0L);
        commitStore();
        Option<?> id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
        return rows + "\t" + (id.isDefined() ? id.get() : "");
    }
}
