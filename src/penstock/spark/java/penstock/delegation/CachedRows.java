package penstock.delegation;

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
import org.apache.spark.unsafe.Platform;

import scala.Option;

import penstock.plans.Catalyst;

/** Rows in Spark's cache: those that a query reads, and those of a last stage that must not run later. */
final class CachedRows {
    /** Whether a query reads a cached query that has stages. */
    static boolean haveStages(LogicalPlan query) {
        boolean haveStages = false;
        for (Object leaf : Catalyst.each(query.collectLeaves())) {
            haveStages = haveStages || leaf instanceof InMemoryRelation && hasStages(((InMemoryRelation) leaf).cachedPlan());
        }
        return haveStages;
    }

    private static boolean hasStages(SparkPlan plan) {
        for (SparkPlan node : Catalyst.nodes(plan)) {
            if (node instanceof AdaptiveSparkPlanExec || node instanceof PenstockExec && ((PenstockExec) node).hasStages()
                    || node instanceof InMemoryTableScanExec && hasStages(((InMemoryTableScanExec) node).relation().cachedPlan())) {
                return true;
            }
        }
        return false;
    }

    /** Materializes a cached query unless it is materialized already; AQE creates a stage for each. */
    static void fill(InMemoryRelation cached) {
        CachedRDDBuilder builder = cached.cacheBuilder();
        if (!builder.isCachedColumnBuffersLoaded()) {
            builder.cachedColumnBuffers().count();
        }
    }

    /** Computes the rows of a DataFrame and caches them until `drop`. Spark's cache does not support all types. */
    static LogicalPlan cache(Dataset<?> rows) {
        LogicalPlan cached = isCacheable(rows.schema())
                ? InMemoryRelation$.MODULE$.apply(StorageLevel.MEMORY_AND_DISK(), rows.queryExecution(), Option.empty())
                : rows.localCheckpoint(false).queryExecution().analyzed();
        try {
            if (cached instanceof InMemoryRelation) {
                fill((InMemoryRelation) cached);
            } else {
                ((LogicalRDD) cached).rdd().count();
            }
        } catch (Throwable failed) {
            drop(cached);
            Platform.throwException(failed);
        }
        return cached;
    }

    /** Drops rows that `cache` has computed. */
    static void drop(LogicalPlan cached) {
        if (cached instanceof InMemoryRelation) {
            ((InMemoryRelation) cached).cacheBuilder().clearCache(false);
        } else {
            ((LogicalRDD) cached).rdd().unpersist(false);
        }
    }

    private static boolean isCacheable(StructType schema) {
        try {
            for (StructField field : schema.fields()) {
                ColumnType$.MODULE$.apply(field.dataType());
            }
            return true;
        } catch (Exception unsupported) { // unsupported, such as geometry
            return false;
        }
    }
}
