package penstock;

import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Assigns keys to key groups, as Spark's own exchange does. */
final class KeyGroups {
    private KeyGroups() {
    }

    /** Returns a projection from a key to its key group. */
    static UnsafeProjection projection(StructType schema, int maxParallelism) {
        StructField[] fields = schema.fields();
        Expression[] columns = new Expression[fields.length];
        for (int i = 0; i < fields.length; i++) {
            columns[i] = new BoundReference(i, fields[i].dataType(), fields[i].nullable());
        }
        HashPartitioning hashing = new HashPartitioning(
                scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(columns), maxParallelism);
        return UnsafeProjection.create(hashing.partitionIdExpression());
    }
}
