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

/** The hash partitioning of rows that are exchanged as columns; see `native/scatter.py`. */
final class NativeScatter {
    private static final List<String> HASHABLE = Arrays.asList("boolean tinyint smallint int bigint date".split(" "));
    /** Decimals up to this precision are hashed as longs. */
    private static final int LONG_DIGITS = 18;

    private NativeScatter() {
    }

    /** Returns the key indexes and subpartitions of a hash exchange, null for other exchanges. */
    static Map<String, Object> of(ShuffleExchangeExec exchange) {
        Object target = exchange.outputPartitioning();
        if (!(target instanceof HashPartitioning) || target.getClass() != HashPartitioning.class) {
            return null;
        }
        HashPartitioning hashing = (HashPartitioning) target;
        return of(hashing.expressions(), hashing.numPartitions(), exchange.child());
    }

    /** Returns the key indexes and subpartitions of the exchange below an aggregate; null if none is needed or without keys. */
    static Map<String, Object> of(BaseAggregateExec aggregate) {
        if (aggregate.requiredChildDistributionExpressions().isEmpty()) {
            return null;
        }
        Object keys = aggregate.requiredChildDistributionExpressions().get();
        SparkPlan child = (SparkPlan) Catalyst.each(((SparkPlan) aggregate).children()).get(0);
        if (child.outputPartitioning().satisfies((Distribution) (Object) aggregate.requiredChildDistribution().head())) {
            return null; // Spark needs no exchange
        }
        return of((Seq<?>) keys, ((SparkPlan) aggregate).conf().numShufflePartitions(), child);
    }

    private static Map<String, Object> of(Seq<?> keys, int subpartitions, SparkPlan child) {
        List<Object> indexes = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            int index = indexOf(key, child);
            if (index < 0 || !isHashable(((Expression) key).dataType())) {
                return null;
            }
            indexes.add(index);
        }
        if (indexes.isEmpty()) {
            return null;
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("keys", indexes);
        facts.put("subpartitions", subpartitions);
        return facts;
    }

    private static int indexOf(Object key, SparkPlan child) {
        for (int i = 0; key instanceof Attribute && i < child.output().size(); i++) {
            if (((Attribute) (Object) child.output().apply(i)).exprId().equals(((Attribute) key).exprId())) {
                return i;
            }
        }
        return -1;
    }

    private static boolean isHashable(DataType type) {
        return type instanceof DecimalType ? ((DecimalType) type).precision() <= LONG_DIGITS : HASHABLE.contains(type.catalogString());
    }
}
