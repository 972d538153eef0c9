package penstock;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.CachedRDDBuilder;
import org.apache.spark.sql.execution.columnar.ColumnType$;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryRelation$;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.storage.StorageLevel;

import scala.Option;

/** Rows in Spark's cache: those that a query reads, and those of a last stage that may not run later. */
final class CachedRows {
    private CachedRows() {
    }

    /** Whether a cached query that a query reads has stages. */
    static boolean haveStages(LogicalPlan query) {
        boolean found = false;
        for (Object leaf : Catalyst.each(query.collectLeaves())) {
            found = found || leaf instanceof InMemoryRelation && hasStages(((InMemoryRelation) leaf).cachedPlan());
        }
        return found;
    }

    private static boolean hasStages(SparkPlan plan) {
        if (plan instanceof PenstockExec) {
            return ((PenstockExec) plan).hasStages();
        }
        if (plan instanceof InMemoryTableScanExec) {
            return hasStages(((InMemoryTableScanExec) plan).relation().cachedPlan());
        }
        boolean found = plan instanceof AdaptiveSparkPlanExec;
        for (Object child : Catalyst.each(plan.children())) {
            found = found || hasStages((SparkPlan) child);
        }
        return found;
    }

    /** Computes the rows of a cached query, if nobody has yet; AQE makes a stage of each. */
    static void fill(InMemoryRelation cached) {
        CachedRDDBuilder builder = cached.cacheBuilder();
        if (!builder.isCachedColumnBuffersLoaded()) {
            builder.cachedColumnBuffers().count();
        }
    }

    /** Returns the rows of a DataFrame, computed now, until `drop`. Spark's cache does not take all types. */
    static LogicalPlan keep(Dataset<?> rows) {
        LogicalPlan kept = areCacheable(rows.schema())
                ? InMemoryRelation$.MODULE$.apply(StorageLevel.MEMORY_AND_DISK(), rows.queryExecution(), Option.empty())
                : rows.localCheckpoint(false).queryExecution().analyzed();
        boolean isComputed = false;
        try {
            if (kept instanceof InMemoryRelation) {
                fill((InMemoryRelation) kept);
            } else {
                ((LogicalRDD) kept).rdd().count();
            }
            isComputed = true;
        } finally {
            if (!isComputed) {
                drop(kept);
            }
        }
        return kept;
    }

    /** Drops rows that were kept. */
    static void drop(LogicalPlan kept) {
        if (kept instanceof InMemoryRelation) {
            ((InMemoryRelation) kept).cacheBuilder().clearCache(false);
        } else {
            ((LogicalRDD) kept).rdd().unpersist(false);
        }
    }

    private static boolean areCacheable(StructType schema) {
        try {
            for (StructField field : schema.fields()) {
                ColumnType$.MODULE$.apply(field.dataType());
            }
            return true;
        } catch (Exception unknown) { // such as geometry
            return false;
        }
    }
}
