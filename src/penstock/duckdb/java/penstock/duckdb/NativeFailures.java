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
 * Records the plans that DuckDB failed to compute: another failure would cost more time than Spark alone takes.
 *
 * It also cancels a stage as soon as DuckDB fails in one of its tasks, so that Spark computes the rows. Otherwise Spark
 * would run the task `spark.task.maxFailures` times, although DuckDB fails on the same values each time; and it may
 * exclude executors on which tasks fail repeatedly.
 */
public final class NativeFailures {
    /** Local property of the jobs whose rows Spark computes after a failure. Failed tasks of other jobs are retried. */
    private static final String PROPERTY = "spark.penstock.native.fails";
    /** For each Spark context that has a listener, the prefix of the errors after which Spark computes the rows. */
    private static final Map<Object, Object> ERROR_PREFIXES = new WeakHashMap<>();
    /** Above this number, the oldest plan is removed, as each plan holds the list of its files. */
    private static final int MAX_PLANS = 64;
    /** For each canonical plan, the reason of its failure, and the versions of its files at the time of recording. */
    private static final Map<Object, Object> FAILURES = new LinkedHashMap<>();

    /**
     * From now until `end`, cancels a stage of a job that this thread starts at the stage's first DuckDB failure.
     *
     * @param errorPrefix the prefix of the errors after which Spark computes the rows
     */
    public void begin(SparkContext context, String errorPrefix) {
        synchronized (ERROR_PREFIXES) {
            if (ERROR_PREFIXES.put(context, errorPrefix) == null) {
                context.addSparkListener(new FailureListener(context));
            }
        }
        context.setLocalProperty(PROPERTY, errorPrefix);
    }

    public void end(SparkContext context) {
        context.setLocalProperty(PROPERTY, null);
    }

    /** Records a plan and the reason of its failure. */
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

    static final class FailureListener extends SparkListener {
        private final SparkContext context;
        private final Map<Object, Object> prefixesByStage = new ConcurrentHashMap<>();

        FailureListener(SparkContext context) {
            this.context = context;
        }

        @Override
        public void onStageSubmitted(SparkListenerStageSubmitted submitted) {
            Properties properties = submitted.properties();
            String errorPrefix = properties == null ? null : properties.getProperty(PROPERTY);
            if (errorPrefix != null) {
                prefixesByStage.put(Integer.valueOf(submitted.stageInfo().stageId()), errorPrefix);
            }
        }

        @Override
        public void onStageCompleted(SparkListenerStageCompleted completed) {
            prefixesByStage.remove(Integer.valueOf(completed.stageInfo().stageId()));
        }

        @Override
        public void onTaskEnd(SparkListenerTaskEnd end) {
            String errorPrefix = (String) prefixesByStage.get(Integer.valueOf(end.stageId()));
            if (errorPrefix == null || !(end.reason() instanceof ExceptionFailure)) {
                return;
            }
            String text = ((ExceptionFailure) end.reason()).toErrorString();
            int begin = text.lastIndexOf(errorPrefix);
            if (begin >= 0) {
                int newline = text.indexOf('\n', begin);
                String line = newline < 0 ? text.substring(begin) : text.substring(begin, newline);
                context.cancelStage(end.stageId(), line + "\n"); // Spark appends to this message
            }
        }
    }
}
