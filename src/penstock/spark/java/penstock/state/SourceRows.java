package penstock.state;

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
        boolean hasRow = reader.next();
        if (hasRow) {
            row = (InternalRow) (Object) reader.get();
        }
        return hasRow;
    }

    UnsafeRow key() {
        return (UnsafeRow) row.getStruct(KEY, keyLength);
    }

    UnsafeRow value() {
        return (UnsafeRow) row.getStruct(VALUE, valueLength);
    }

    @Override
    void close() throws Exception {
        reader.close();
    }
}
