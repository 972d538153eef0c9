package penstock.plans;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;

import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/**
 * Tables that are partitioned by the keys of a join, aggregation or window, so that Spark needs no shuffle for them.
 *
 * They are written with bucketBy, or report their partitioning (such as Iceberg tables).
 */
public final class BucketedTables {
    public static final String REASON = "its tables are bucketed by its keys, which saves a shuffle";

    /** Whether Spark saves a shuffle in a part of a plan because its tables are bucketed by the keys. */
    public static boolean savesShuffle(LogicalPlan plan) {
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            if (usesBuckets(node)) {
                return true;
            }
        }
        return false;
    }

    private static boolean usesBuckets(LogicalPlan plan) {
        if (plan instanceof Join) {
            return usesBuckets((Join) plan);
        }
        if (plan instanceof Aggregate) {
            return arePartitionedBy(Catalyst.each(((Aggregate) plan).groupingExpressions()), ((Aggregate) plan).child());
        }
        return plan instanceof Window && arePartitionedBy(Catalyst.each(((Window) plan).partitionSpec()), ((Window) plan).child());
    }

    /** Whether a join benefits from such a table; false if Spark estimates that a side is small enough to broadcast. */
    private static boolean usesBuckets(Join join) {
        Option<?> condition = join.condition();
        if (condition.isEmpty() || isSmall(join.left()) || isSmall(join.right())) {
            return false;
        }
        List<?> keys = Catalyst.each(((Expression) condition.get()).references().toSeq());
        return arePartitionedBy(keys, join.left()) || arePartitionedBy(keys, join.right());
    }

    private static boolean isSmall(LogicalPlan side) {
        BigInt bytes = side.stats().sizeInBytes();
        return bytes.isValidLong() && bytes.toLong() <= SQLConf.get().autoBroadcastJoinThreshold();
    }

    /** Whether the rows of a plan are partitioned by columns that are all among the keys. */
    private static boolean arePartitionedBy(List<?> keys, LogicalPlan plan) {
        LogicalPlan below = plan;
        while (below instanceof Project || below instanceof Filter) {
            below = Catalyst.onlyChild(below);
        }
        List<Attribute> columns = partitionColumns(below);
        for (Attribute column : columns) {
            if (Catalyst.indexOf(column, keys) < 0) {
                return false;
            }
        }
        return !columns.isEmpty();
    }

    /** Returns the columns that a table is partitioned by; empty if there are none or not all are read. */
    private static List<Attribute> partitionColumns(LogicalPlan leaf) {
        List<Attribute> columns = new ArrayList<>();
        if (Catalyst.fileRelation(leaf) != null) {
            Option<?> buckets = Catalyst.fileRelation(leaf).bucketSpec();
            if (buckets.isDefined() && SQLConf.get().bucketingEnabled()) {
                for (String name : Catalyst.each(((BucketSpec) buckets.get()).bucketColumnNames())) {
                    Attribute column = columnOf(name, leaf);
                    if (column == null) {
                        return new ArrayList<>();
                    }
                    columns.add(column);
                }
            }
        } else if (leaf instanceof DataSourceV2ScanRelation && SQLConf.get().v2BucketingEnabled()) {
            Option<?> partitions = ((DataSourceV2ScanRelation) leaf).keyGroupedPartitioning();
            if (partitions.isDefined()) {
                for (Object key : Catalyst.each((Seq<?>) partitions.get())) {
                    columns.addAll(Catalyst.each(((Expression) key).references().toSeq()));
                }
            }
        }
        return columns;
    }

    private static Attribute columnOf(String name, LogicalPlan leaf) {
        for (Attribute column : Catalyst.each(leaf.output())) {
            if (SQLConf.get().resolver().apply(column.name(), name).equals(true)) {
                return column;
            }
        }
        return null;
    }
}
