package penstock.io;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF0;

/** A SQL function that returns the id of the task attempt, which is unique within an application. */
public final class TaskAttempt implements UDF0<Object> {
    private static final long serialVersionUID = 1L;

    @Override
    public Object call() {
        return TaskContext.get().taskAttemptId();
    }
}
