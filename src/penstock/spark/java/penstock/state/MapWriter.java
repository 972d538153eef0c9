package penstock.state;

import java.lang.reflect.Method;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap$;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.types.StructType;

/** A new key group of an in-memory store, written as a single snapshot; for `RowMover`. */
final class MapWriter extends RowWriter {
    private final HDFSBackedStateStoreProvider provider;
    private final long version;
    private final Object map;
    private final Method put;
    private long rows;

    MapWriter(HDFSBackedStateStoreProvider provider, StructType keySchema, long version) throws Exception {
        this.provider = provider;
        this.version = version;
        // Prefix scans are not used here, so the map needs no number of prefix columns.
        map = PrivateMembers.call(HDFSBackedStateStoreMap$.MODULE$, "create", keySchema, 0);
        put = PrivateMembers.find(map, "put", 2);
    }

    @Override
    void add(UnsafeRow key, UnsafeRow value) throws Exception {
        put.invoke(map, new Object[] {key.copy(), value.copy()});
        rows++;
    }

    @Override
    String commit() throws Exception {
        // The store's own commit would write a delta, which applies to the last version of the old group.
        PrivateMembers.call(provider, "writeSnapshotFile", version, map, "rescale");
        return rows + "\t";
    }

    @Override
    void close() {
        provider.close();
    }
}
