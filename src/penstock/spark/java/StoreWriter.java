package penstock;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/** A new key group that is written through its store, opened at a version. */
abstract class StoreWriter extends RowWriter {
    static final String FAMILY = "default";

    private final StateStoreProvider provider;
    private final StateStore opened;
    private long rows;
    private boolean committed;

    StoreWriter(StateStoreProvider provider, StateStore opened) {
        this.provider = provider;
        this.opened = opened;
    }

    @Override
    final void add(UnsafeRow key, UnsafeRow value) {
        opened.put(key, value, FAMILY);
        rows++;
    }

    /** Commits the store; returns the number of rows. */
    final long commitStore() {
        opened.commit();
        committed = true;
        return rows;
    }

    final StateStore opened() {
        return opened;
    }

    final long rows() {
        return rows;
    }

    @Override
    final void close() {
        if (!committed) {
            opened.abort();
        }
        provider.close();
    }
}
