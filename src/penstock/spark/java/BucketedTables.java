package penstock;

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
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;

import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/**
 * Tables that are partitioned by the keys of a join or an aggregation, so that Spark needs no shuffle for them.
 *
 * They are written with bucketBy, or report their partitioning (such as Iceberg tables).
 */
public final class BucketedTables {
    static final String REASON = "its tables are bucketed by its keys, which saves a shuffle";

    /** Whether Spark saves a shuffle in a part of a plan because its tables are bucketed by the keys. */
    public boolean saveShuffle(LogicalPlan plan) {
        return areUsed(plan);
    }

    static boolean areUsed(LogicalPlan plan) {
        if (plan instanceof Join ? isUsed((Join) plan) : isUsed(keys(plan), plan)) {
            return true;
        }
        for (Object below : Catalyst.below(plan)) {
            if (areUsed((LogicalPlan) below)) {
                return true;
            }
        }
        return false;
    }

    /** A side that is small by Spark's estimate is broadcast; then the partitioning of the other side is irrelevant. */
    private static boolean isUsed(Join join) {
        Option<?> condition = join.condition();
        if (condition.isEmpty() || isSmall(join.left()) || isSmall(join.right())) {
            return false;
        }
        List<?> keys = Catalyst.each(((Expression) condition.get()).references().toSeq());
        return arePartitionedBy(keys, join.left()) || arePartitionedBy(keys, join.right());
    }

    private static boolean isUsed(Seq<Expression> keys, LogicalPlan plan) {
        return keys != null && arePartitionedBy(Catalyst.each(keys), (LogicalPlan) Catalyst.each(plan.children()).get(0));
    }

    private static Seq<Expression> keys(LogicalPlan plan) {
        if (plan instanceof Aggregate) {
            return ((Aggregate) plan).groupingExpressions();
        }
        return plan instanceof Window ? ((Window) plan).partitionSpec() : null;
    }

    private static boolean isSmall(LogicalPlan side) {
        BigInt bytes = side.stats().sizeInBytes();
        return bytes.isValidLong() && bytes.toLong() <= SQLConf.get().autoBroadcastJoinThreshold();
    }

    /** Whether the rows of a plan are partitioned by columns that are all among the keys. */
    private static boolean arePartitionedBy(List<?> keys, LogicalPlan plan) {
        LogicalPlan below = plan;
        while (below instanceof Project || below instanceof Filter) {
            below = (LogicalPlan) Catalyst.each(below.children()).get(0);
        }
        List<Attribute> columns = partitionColumns(below);
        for (Attribute column : columns) {
            if (!isAmong(keys, column)) {
                return false;
            }
        }
        return !columns.isEmpty();
    }

    private static boolean isAmong(List<?> keys, Attribute column) {
        for (Object key : keys) {
            if (key instanceof Attribute && ((Attribute) key).exprId().equals(column.exprId())) {
                return true;
            }
        }
        return false;
    }

    /** Returns the columns that a table is partitioned by; none if it is not, or if one of these is not read. */
    private static List<Attribute> partitionColumns(LogicalPlan leaf) {
        List<Attribute> columns = new ArrayList<>();
        if (leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation) {
            Option<?> buckets = ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).bucketSpec();
            if (buckets.isDefined() && SQLConf.get().bucketingEnabled()) {
                for (Object name : Catalyst.each(((BucketSpec) buckets.get()).bucketColumnNames())) {
                    Attribute column = columnOf((String) name, leaf);
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
                    for (Object column : Catalyst.each(((Expression) key).references().toSeq())) {
                        columns.add((Attribute) column);
                    }
                }
            }
        }
        return columns;
    }

    private static Attribute columnOf(String name, LogicalPlan leaf) {
        for (Object column : Catalyst.each(leaf.output())) {
            if (SQLConf.get().resolver().apply(((Attribute) column).name(), name).equals(true)) {
                return (Attribute) column;
            }
        }
        return null;
    }
}
