package penstock.bridge;

import java.io.File;
import java.lang.reflect.Field;

import org.apache.spark.JobArtifactSet;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.artifact.ArtifactManager;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SessionState;

import scala.Option;
import scala.collection.Map;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * The artifacts of a session (Python modules, files, classes), for the threads on which its queries run.
 *
 * Spark binds them to the thread that runs an action (SQLExecution, by ArtifactManager.withResources), and its scheduler
 * passes them from there to tasks.
 */
public final class Artifacts {
    /** The artifacts that a thread is bound to; `apply` records those of the current thread. */
    public static final class Binding extends AbstractFunction0<Object> {
        private Option<?> state;
        private ClassLoader loader;

        @Override
        public Object apply() {
            state = JobArtifactSet.getCurrentJobArtifactState();
            loader = Thread.currentThread().getContextClassLoader();
            return this;
        }
    }

    /** Binds this thread to the artifacts of a session; returns the previous binding. */
    public Binding bind(SparkSession session) throws ReflectiveOperationException {
        Binding previous = new Binding();
        previous.apply();
        Binding binding = new Binding();
        session.artifactManager().withResources(binding); // binds this thread only while it calls `apply`
        restore(binding);
        return previous;
    }

    /**
     * Returns a clone of a session, as SparkSession.cloneSession does, but sharing the session's artifacts. Spark
     * itself gives each clone a copy of all files and cached rows, which stays until the server stops.
     */
    public SparkSession cloneOf(SparkSession session) throws ReflectiveOperationException {
        SparkSession clone = new SparkSession(session.sparkContext(), Option.apply(session.sharedState()),
            Option.apply(session.sessionState()), session.extensions(), Map$.MODULE$.empty(), Map$.MODULE$.empty());
        final ArtifactManager shared = session.artifactManager();
        Field builder = SessionState.class.getDeclaredField("artifactManagerBuilder");
        builder.setAccessible(true);
        builder.set(clone.sessionState(), new AbstractFunction0<ArtifactManager>() { // Spark calls it on first use
            @Override
            public ArtifactManager apply() {
                return shared;
            }
        });
        return clone;
    }

    /**
     * Adds a jar to the tasks of a session's queries, unless it was added before. If a session has artifacts, its tasks
     * do not see a jar that was added for another session, or for all sessions after the first query of this session.
     */
    public void addJar(SparkSession session, String path) throws ReflectiveOperationException {
        Binding previous = bind(session);
        try {
            Option<?> state = JobArtifactSet.getCurrentJobArtifactState();
            String group = state.isEmpty() ? "default" : ((JobArtifactState) state.get()).uuid();
            if (!hasJar(session.sparkContext(), group, path)) {
                session.sparkContext().addJar(path);
            }
        } finally {
            restore(previous);
        }
    }

    private static boolean hasJar(SparkContext context, String group, String path) {
        Option<?> jars = context.addedJars().get(group);
        if (jars.isDefined()) {
            for (Object address : CollectionConverters.asJava((Map<?, ?>) jars.get()).keySet()) {
                if (((String) address).endsWith("/jars/" + new File(path).getName())) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Restores a previous binding of this thread. */
    @SuppressWarnings("unchecked") // reflection does not know the field's type
    public void restore(Binding binding) throws ReflectiveOperationException {
        Thread.currentThread().setContextClassLoader(binding.loader);
        if (binding.state.equals(JobArtifactSet.getCurrentJobArtifactState())) {
            return;
        }
        // Spark's own method sets the field only while a function runs.
        for (Field field : JobArtifactSet$.class.getDeclaredFields()) {
            if (ThreadLocal.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((ThreadLocal<Object>) field.get(JobArtifactSet$.MODULE$)).set(binding.state);
            }
        }
    }
}
