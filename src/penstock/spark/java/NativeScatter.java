package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.Distribution;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

/** Into which subpartitions rows go that leave as columns; see `native/scatter.py`. */
final class NativeScatter {
    private static final List<String> HASHED = Arrays.asList("boolean tinyint smallint int bigint date".split(" "));
    /** Decimals of so many digits are hashed as long integers. */
    private static final int LONG_DIGITS = 18;

    private NativeScatter() {
    }

    /** Returns what an exchange hashes, null if it is of another kind. */
    static Map<String, Object> of(ShuffleExchangeExec exchange) {
        Object target = exchange.outputPartitioning();
        if (!(target instanceof HashPartitioning) || target.getClass() != HashPartitioning.class) {
            return null;
        }
        HashPartitioning hashing = (HashPartitioning) target;
        return of(hashing.expressions(), hashing.numPartitions(), exchange.child());
    }

    /** Returns what an aggregate wants exchanged, null if that is not by keys. */
    static Map<String, Object> of(BaseAggregateExec aggregate) {
        if (aggregate.requiredChildDistributionExpressions().isEmpty()) {
            return null;
        }
        Object keys = aggregate.requiredChildDistributionExpressions().get();
        SparkPlan child = (SparkPlan) Catalyst.each(((SparkPlan) aggregate).children()).get(0);
        if (child.outputPartitioning().satisfies((Distribution) (Object) aggregate.requiredChildDistribution().head())) {
            return null; // Spark would exchange nothing
        }
        return of((Seq<?>) keys, ((SparkPlan) aggregate).conf().numShufflePartitions(), child);
    }

    private static Map<String, Object> of(Seq<?> keys, int subpartitions, SparkPlan child) {
        List<Object> places = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            int place = place(key, child);
            if (place < 0 || !isHashed(((Expression) key).dataType())) {
                return null;
            }
            places.add(place);
        }
        if (places.isEmpty()) {
            return null;
        }
        Map<String, Object> found = new HashMap<>();
        found.put("keys", places);
        found.put("subpartitions", subpartitions);
        return found;
    }

    private static int place(Object key, SparkPlan child) {
        for (int i = 0; key instanceof Attribute && i < child.output().size(); i++) {
            if (((Attribute) (Object) child.output().apply(i)).exprId().equals(((Attribute) key).exprId())) {
                return i;
            }
        }
        return -1;
    }

    private static boolean isHashed(DataType type) {
        return type instanceof DecimalType ? ((DecimalType) type).precision() <= LONG_DIGITS : HASHED.contains(type.catalogString());
    }
}
