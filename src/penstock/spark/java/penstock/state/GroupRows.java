package penstock.state;

import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import scala.collection.immutable.ArraySeq$;

/** The rows of an old key group, each with its new group. */
abstract class GroupRows {
    /** Returns a projection from a key to its key group, the same as that of Spark's own exchange. */
    static UnsafeProjection projection(StructType schema, int maxParallelism) {
        StructField[] fields = schema.fields();
        Expression[] columns = new Expression[fields.length];
        for (int i = 0; i < fields.length; i++) {
            columns[i] = new BoundReference(i, fields[i].dataType(), fields[i].nullable());
        }
        HashPartitioning hashing = new HashPartitioning(ArraySeq$.MODULE$.unsafeWrapArray(columns), maxParallelism);
        return UnsafeProjection.create(hashing.partitionIdExpression());
    }

    /** Moves to the next row; returns false at the end. */
    abstract boolean next() throws Exception;

    /** Returns the new key group of the row. */
    abstract int group();

    abstract void close() throws Exception;
}
