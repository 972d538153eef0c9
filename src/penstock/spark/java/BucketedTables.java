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
 * Tables whose files lie by the keys of a join or an aggregation, so that Spark needs no shuffle for them.
 *
 * They are written with bucketBy, or report how they are partitioned (Iceberg's, among others).
 */
public final class BucketedTables {
    static final String WHY = "its tables lie in buckets of its keys, which saves a shuffle";

    /** Whether Spark runs a part of a plan without a shuffle, because of how its tables lie. */
    public boolean saveAShuffle(LogicalPlan plan) {
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

    /** A side that is small by Spark's estimate is broadcast, and then it does not matter how the other one lies. */
    private static boolean isUsed(Join join) {
        Option<?> condition = join.condition();
        if (condition.isEmpty() || isSmall(join.left()) || isSmall(join.right())) {
            return false;
        }
        List<?> keys = Catalyst.each(((Expression) condition.get()).references().toSeq());
        return lieBy(keys, join.left()) || lieBy(keys, join.right());
    }

    private static boolean isUsed(Seq<Expression> keys, LogicalPlan plan) {
        return keys != null && lieBy(Catalyst.each(keys), (LogicalPlan) Catalyst.each(plan.children()).get(0));
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

    /** Whether the rows of a plan lie by columns that are all among some keys. */
    private static boolean lieBy(List<?> keys, LogicalPlan plan) {
        LogicalPlan below = plan;
        while (below instanceof Project || below instanceof Filter) {
            below = (LogicalPlan) Catalyst.each(below.children()).get(0);
        }
        List<Attribute> columns = layout(below);
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

    /** Returns the columns by which the rows of a table lie; none if they do not, or if one of them is not read. */
    private static List<Attribute> layout(LogicalPlan leaf) {
        List<Attribute> found = new ArrayList<>();
        if (leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation) {
            Option<?> buckets = ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).bucketSpec();
            if (buckets.isDefined() && SQLConf.get().bucketingEnabled()) {
                for (Object name : Catalyst.each(((BucketSpec) buckets.get()).bucketColumnNames())) {
                    Attribute column = named((String) name, leaf);
                    if (column == null) {
                        return new ArrayList<>();
                    }
                    found.add(column);
                }
            }
        } else if (leaf instanceof DataSourceV2ScanRelation && SQLConf.get().v2BucketingEnabled()) {
            Option<?> partitions = ((DataSourceV2ScanRelation) leaf).keyGroupedPartitioning();
            if (partitions.isDefined()) {
                for (Object each : Catalyst.each((Seq<?>) partitions.get())) {
                    for (Object column : Catalyst.each(((Expression) each).references().toSeq())) {
                        found.add((Attribute) column);
                    }
                }
            }
        }
        return found;
    }

    private static Attribute named(String name, LogicalPlan leaf) {
        for (Object each : Catalyst.each(leaf.output())) {
            if (SQLConf.get().resolver().apply(((Attribute) each).name(), name).equals(true)) {
                return (Attribute) each;
            }
        }
        return null;
    }
}
