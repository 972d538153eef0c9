package penstock;

import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Key groups as Spark's own exchange deals rows to them. */
final class KeyGroups {
    private KeyGroups() {
    }

    /** Returns what computes the key group of a key. */
    static UnsafeProjection projection(StructType schema, int maxParallelism) {
        StructField[] fields = schema.fields();
        Expression[] columns = new Expression[fields.length];
        for (int i = 0; i < fields.length; i++) {
            columns[i] = new BoundReference(i, fields[i].dataType(), fields[i].nullable());
        }
        HashPartitioning spread = new HashPartitioning(
                scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(columns), maxParallelism);
        return UnsafeProjection.create(spread.partitionIdExpression());
    }
}
