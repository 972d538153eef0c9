package penstock;

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

/**
 * Cancels a stage as soon as DuckDB fails in one of its tasks, so that Spark computes the rows.
 *
 * Spark would run the task `spark.task.maxFailures` times, and DuckDB fails on the same values each time. Executors on
 * which tasks fail repeatedly may also be excluded.
 */
public final class NativeFailures {
    /** Local property of the jobs whose failure lets Spark compute the rows. Tasks of all others are repeated. */
    private static final String PROPERTY = "spark.penstock.native.fails";
    private static final Map<Object, Object> WATCHED = new WeakHashMap<>();

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

    /** Stops marking the jobs of this thread. */
    public void end(SparkContext context) {
        context.setLocalProperty(PROPERTY, null);
    }

    /** Listens for failed tasks of the marked jobs. */
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
