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

/** Rows in Spark's cache: those that a query reads, and those of a job's last stage if it must not run later. */
final class CachedRows {
    /** Whether a query reads a cached query whose plan has stages, which must run before the cached rows are read. */
    static boolean hasCachedStages(LogicalPlan query) {
        boolean hasCachedStages = false;
        for (Object leaf : Catalyst.each(query.collectLeaves())) {
            hasCachedStages = hasCachedStages || leaf instanceof InMemoryRelation && hasStages(((InMemoryRelation) leaf).cachedPlan());
        }
        return hasCachedStages;
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

    /** Materializes a cached query unless it is materialized already; AQE would do so in a stage. */
    static void fill(InMemoryRelation cached) {
        CachedRDDBuilder builder = cached.cacheBuilder();
        if (!builder.isCachedColumnBuffersLoaded()) {
            builder.cachedColumnBuffers().count();
        }
    }

    /** Computes and caches a DataFrame's rows until `drop`; checkpoints them if Spark's cache lacks their types. */
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
        } catch (Exception unsupported) { // such as geometry
            return false;
        }
    }
}
