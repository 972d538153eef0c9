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
    /** The artifacts that a thread is bound to. */
    public static final class Bound extends AbstractFunction0<Object> {
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
    public Bound bind(SparkSession session) throws ReflectiveOperationException {
        Bound before = new Bound();
        before.apply();
        Bound bound = new Bound();
        session.artifactManager().withResources(bound);
        restore(bound);
        return before;
    }

    /**
     * Returns a clone of a session, as SparkSession.cloneSession does, but sharing the session's artifacts. Spark gives each
     * clone a copy of all files and cached rows, which stays until the server stops.
     */
    public SparkSession cloneOf(SparkSession session) throws ReflectiveOperationException {
        SparkSession clone = new SparkSession(session.sparkContext(), Option.apply(session.sharedState()),
            Option.apply(session.sessionState()), session.extensions(), Map$.MODULE$.empty(), Map$.MODULE$.empty());
        final ArtifactManager shared = session.artifactManager();
        Field builder = SessionState.class.getDeclaredField("artifactManagerBuilder");
        builder.setAccessible(true);
        builder.set(clone.sessionState(), new AbstractFunction0<ArtifactManager>() { // called on first use
            @Override
            public ArtifactManager apply() {
                return shared;
            }
        });
        return clone;
    }

    /**
     * Adds a jar to the tasks of a session's queries, unless it was added before. Tasks of a session with artifacts of its
     * own see no jar that was added for other sessions, nor a jar that was added for all after its first query.
     */
    public void addJar(SparkSession session, String path) throws ReflectiveOperationException {
        Bound before = bind(session);
        try {
            Option<?> state = JobArtifactSet.getCurrentJobArtifactState();
            String group = state.isEmpty() ? "default" : ((JobArtifactState) state.get()).uuid();
            if (!hasJar(session.sparkContext(), group, path)) {
                session.sparkContext().addJar(path);
            }
        } finally {
            restore(before);
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
    public void restore(Bound bound) throws ReflectiveOperationException {
        Thread.currentThread().setContextClassLoader(bound.loader);
        if (bound.state.equals(JobArtifactSet.getCurrentJobArtifactState())) {
            return;
        }
        for (Field field : JobArtifactSet$.class.getDeclaredFields()) { // Spark's own method sets it only while a function runs
            if (ThreadLocal.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((ThreadLocal<Object>) field.get(JobArtifactSet$.MODULE$)).set(bound.state);
            }
        }
    }
}
