package penstock;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;

/** The rows of an old key group from Spark's own state data source. */
abstract class SourceRows extends GroupRows {
    private static final int KEY = 0;
    private static final int VALUE = 1;

    private final PartitionReader<?> reader;
    private final int keyLength;
    private final int valueLength;
    private InternalRow row;

    SourceRows(PartitionReader<?> reader, int keyLength, int valueLength) {
        this.reader = reader;
        this.keyLength = keyLength;
        this.valueLength = valueLength;
    }

    @Override
    boolean next() throws Exception {
        boolean more = reader.next();
        if (more) {
            Object current = reader.get();
            row = (InternalRow) current;
        }
        return more;
    }

    UnsafeRow key() {
        Object key = row.getStruct(KEY, keyLength);
        return (UnsafeRow) key;
    }

    UnsafeRow value() {
        Object value = row.getStruct(VALUE, valueLength);
        return (UnsafeRow) value;
    }

    @Override
    void close() throws Exception {
        reader.close();
    }
}
