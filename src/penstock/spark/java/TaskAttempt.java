package penstock;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF0;

/** A function of a row that tells the attempt of the task that reads it: no two attempts of an application are equal. */
public final class TaskAttempt implements UDF0<Object> {
    private static final long serialVersionUID = 1L;

    @Override
    public Object call() {
        return TaskContext.get().taskAttemptId();
    }
}
