package penstock.duckdb;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.ExceptionFailure;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.catalyst.plans.QueryPlan;

import penstock.plans.ListingComparison;

/**
 * Remembers the plans that DuckDB failed to compute: repeating the failure costs more than Spark alone.
 *
 * It also cancels a stage as soon as DuckDB fails in one of its tasks, so that Spark computes the rows.
 *
 * Spark would run the task `spark.task.maxFailures` times, and DuckDB fails on the same values each time. Executors on
 * which tasks fail repeatedly may also be excluded.
 */
public final class NativeFailures {
    /** Local property of the jobs whose failure lets Spark compute the rows. Tasks of all others are repeated. */
    private static final String PROPERTY = "spark.penstock.native.fails";
    private static final Map<Object, Object> WATCHED = new WeakHashMap<>();
    /** Older plans are removed, as each holds the list of its files. */
    private static final int MAX_PLANS = 64;

    /** By canonical plan, the reason and the file versions at that time. */
    private static final Map<Object, Object> FAILURES = new LinkedHashMap<>();

    /**
     * Marks the jobs that this thread starts from now on.
     *
     * @param error the prefix of the errors after which Spark computes the rows
     */
    public void begin(SparkContext context, String error) {
        synchronized (WATCHED) {
            if (WATCHED.put(context, error) == null) {
                context.addSparkListener(new Watch(context));
            }
        }
        context.setLocalProperty(PROPERTY, error);
    }

    public void end(SparkContext context) {
        context.setLocalProperty(PROPERTY, null);
    }

    /** Adds a plan and the reason of its failure. */
    public void record(QueryPlan<?> plan, String reason) {
        Object failure = Arrays.<Object>asList(reason, ListingComparison.versions(plan)); // may list files, so outside of the lock
        synchronized (FAILURES) {
            FAILURES.put(plan.canonicalized(), failure);
            if (FAILURES.size() > MAX_PLANS) {
                FAILURES.remove(FAILURES.keySet().iterator().next());
            }
        }
    }

    /** Returns why an equal plan over the same file versions failed, null if it did not. */
    public String reason(QueryPlan<?> plan) {
        List<?> failure;
        synchronized (FAILURES) {
            failure = (List<?>) FAILURES.get(plan.canonicalized());
        }
        // Spark considers relations over the same folders equal, even if their file listings differ.
        return failure != null && failure.get(1).equals(ListingComparison.versions(plan)) ? (String) failure.get(0) : null;
    }

    static final class Watch extends SparkListener {
        private final SparkContext context;
        private final Map<Object, Object> errors = new ConcurrentHashMap<>();

        Watch(SparkContext context) {
            this.context = context;
        }

        @Override
        public void onStageSubmitted(SparkListenerStageSubmitted submitted) {
            Properties properties = submitted.properties();
            String error = properties == null ? null : properties.getProperty(PROPERTY);
            if (error != null) {
                errors.put(Integer.valueOf(submitted.stageInfo().stageId()), error);
            }
        }

        @Override
        public void onStageCompleted(SparkListenerStageCompleted completed) {
            errors.remove(Integer.valueOf(completed.stageInfo().stageId()));
        }

        @Override
        public void onTaskEnd(SparkListenerTaskEnd end) {
            String error = (String) errors.get(Integer.valueOf(end.stageId()));
            if (error == null || !(end.reason() instanceof ExceptionFailure)) {
                return;
            }
            String text = ((ExceptionFailure) end.reason()).toErrorString();
            int begin = text.lastIndexOf(error);
            if (begin >= 0) {
                int newline = text.indexOf('\n', begin);
                String line = newline < 0 ? text.substring(begin) : text.substring(begin, newline);
                context.cancelStage(end.stageId(), line + "\n"); // Spark appends to this message
            }
        }
    }
}
