package penstock.state;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/** Writes a new key group through a state store of Spark that is empty at first. */
abstract class StoreWriter extends RowWriter {
    /** Spark's default column family. */
    static final String FAMILY = "default";

    private final StateStoreProvider provider;
    final StateStore store;
    long rows;
    private boolean committed;

    StoreWriter(StateStoreProvider provider, StateStore store) {
        this.provider = provider;
        this.store = store;
    }

    @Override
    final void add(UnsafeRow key, UnsafeRow value) {
        store.put(key, value, FAMILY);
        rows++;
    }

    final void commitStore() {
        store.commit();
        committed = true;
    }

    @Override
    final void close() {
        if (!committed) {
            store.abort();
        }
        provider.close();
    }
}
