package penstock;

import java.lang.reflect.Method;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap$;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.types.StructType;

/** A new key group of a store that keeps its state in memory, as one snapshot. */
final class MapWriter extends RowWriter {
    private final HDFSBackedStateStoreProvider provider;
    private final long version;
    private final Object map;
    private final Method put;
    private long rows;

    MapWriter(HDFSBackedStateStoreProvider provider, StructType keySchema, long version) throws Exception {
        this.provider = provider;
        this.version = version;
        // Nobody looks keys up by their first columns here, so the map need not know how many these are.
        map = PrivateMembers.call(
                HDFSBackedStateStoreMap$.MODULE$, "create", new Object[] {keySchema, Integer.valueOf(0)});
        put = PrivateMembers.find(map, "put", 2);
    }

    @Override
    void add(UnsafeRow key, UnsafeRow value) throws Exception {
        put.invoke(map, new Object[] {key.copy(), value.copy()});
        rows++;
    }

    @Override
    String commit() throws Exception {
        // A store's own commit writes changes, which would count as changes of the old group's last version.
        PrivateMembers.call(provider, "writeSnapshotFile", new Object[] {Long.valueOf(version), map, "rescale"});
        return rows + "\t";
    }

    @Override
    void close() {
        provider.close();
    }
}
