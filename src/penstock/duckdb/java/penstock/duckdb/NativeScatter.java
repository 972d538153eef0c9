package penstock.duckdb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.Distribution;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.EnsureRequirements;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Option;
import scala.collection.immutable.Seq;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.exchange.ColumnsToRows;
import penstock.plans.Catalyst;

/** Exchanges: those that a part needs below it, and the hash partitioning of columns (`worker/scatter.py`). */
final class NativeScatter {
    /** The types that the Python worker (`worker/scatter.py`) hashes as Spark does; it also hashes short decimals. */
    private static final List<String> HASHED_BY_WORKER = Arrays.asList("boolean tinyint smallint int bigint date float double timestamp timestamp_ntz".split(" "));
    /** Decimals up to this precision are hashed as longs. */
    private static final int MAX_LONG_DIGITS = 18;

    /**
     * Returns the key indexes and subpartitions of the hash exchange that `plan` is, or that Spark will add below
     * `plan` if it is an aggregate. Null if there is no such exchange, or if a key is not a column or cannot be hashed.
     */
    static Map<String, Object> of(SparkPlan plan) {
        if (plan instanceof ShuffleExchangeExec) {
            Object partitioning = plan.outputPartitioning();
            if (partitioning.getClass() != HashPartitioning.class) {
                return null;
            }
            HashPartitioning hashing = (HashPartitioning) partitioning;
            return of(hashing.expressions(), hashing.numPartitions(), Catalyst.onlyChild(plan));
        }
        BaseAggregateExec aggregate = plan instanceof BaseAggregateExec ? (BaseAggregateExec) plan : null;
        if (aggregate == null || aggregate.requiredChildDistributionExpressions().isEmpty()) {
            return null;
        }
        Object keys = aggregate.requiredChildDistributionExpressions().get();
        SparkPlan child = Catalyst.onlyChild(plan);
        if (child.outputPartitioning().satisfies((Distribution) (Object) aggregate.requiredChildDistribution().head())) {
            return null; // Spark needs no exchange
        }
        return of((Seq<?>) keys, plan.conf().numShufflePartitions(), child);
    }

    private static Map<String, Object> of(Seq<?> keys, int subpartitions, SparkPlan child) {
        List<Object> indexes = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            int index = Catalyst.indexOf(key, Catalyst.each(child.output()));
            if (index < 0 || !isHashedByWorker(((Expression) key).dataType())) {
                return null;
            }
            indexes.add(index);
        }
        return indexes.isEmpty() ? null : Answer.facts("keys", indexes, "subpartitions", subpartitions);
    }

    private static boolean isHashedByWorker(DataType type) {
        return type instanceof DecimalType ? ((DecimalType) type).precision() <= MAX_LONG_DIGITS : HASHED_BY_WORKER.contains(type.catalogString());
    }

    /** Checks that Spark's own rule would not exchange the inputs of joins and aggregates. */
    static void checkLayout(SparkPlan plan) throws Declined {
        boolean exchanges;
        try {
            exchanges = containsExchange(new EnsureRequirements(true, Option.empty()).apply(plan));
        } catch (Exception error) { // `CoalescedLayouts` throws an undeclared exception
            exchanges = true;
        }
        if (exchanges) {
            throw new Declined("rows that must be exchanged first");
        }
    }

    private static boolean containsExchange(SparkPlan plan) {
        if (plan instanceof Exchange) {
            return true;
        }
        // The exchange below a `ColumnsToRows` has run already.
        for (Object child : plan instanceof ColumnsToRows ? new ArrayList<Object>() : Catalyst.each(plan.children())) {
            if (containsExchange((SparkPlan) child)) {
                return true;
            }
        }
        return false;
    }
}
