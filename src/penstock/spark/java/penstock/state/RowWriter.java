package penstock.state;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** A new key group that is written row by row. */
abstract class RowWriter {
    abstract void add(UnsafeRow key, UnsafeRow value) throws Exception;

    /** Writes the group; returns its number of rows, a tab, and the unique id of its version if it has one. */
    abstract String commit() throws Exception;

    abstract void close() throws Exception;
}
