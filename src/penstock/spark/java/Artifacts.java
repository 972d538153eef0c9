package penstock;

import java.lang.reflect.Field;

import org.apache.spark.JobArtifactSet;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.sql.classic.SparkSession;

import scala.Option;
import scala.runtime.AbstractFunction0;

/**
 * What was added to a session alone (Python modules, files, classes), for threads on which its queries run.
 *
 * Spark binds it to the thread that asks for rows (SQLExecution, by ArtifactManager.withResources), and its scheduler
 * tells tasks what it finds there.
 */
public final class Artifacts {
    /** What a thread is bound to. */
    public static final class Bound extends AbstractFunction0<Object> {
        private Option<?> state;
        private ClassLoader loader;

        /** Remembers what the thread is bound to now. */
        @Override
        public Object apply() {
            state = JobArtifactSet.getCurrentJobArtifactState();
            loader = Thread.currentThread().getContextClassLoader();
            return this;
        }
    }

    /** Binds this thread to what a session has; returns what it was bound to. */
    public Bound bind(SparkSession session) throws ReflectiveOperationException {
        Bound before = new Bound();
        before.apply();
        Bound found = new Bound();
        session.artifactManager().withResources(found);
        restore(found);
        return before;
    }

    /** Binds this thread to something else. */
    @SuppressWarnings("unchecked") // the field's type is not told
    public void restore(Bound bound) throws ReflectiveOperationException {
        Thread.currentThread().setContextClassLoader(bound.loader);
        if (bound.state.equals(JobArtifactSet.getCurrentJobArtifactState())) {
            return;
        }
        for (Field field : JobArtifactSet$.class.getDeclaredFields()) { // Spark sets it for the length of a function only
            if (ThreadLocal.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((ThreadLocal<Object>) field.get(JobArtifactSet$.MODULE$)).set(bound.state);
            }
        }
    }
}
