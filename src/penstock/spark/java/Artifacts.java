package penstock;

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

    /**
     * Returns a clone of a session, as SparkSession.cloneSession makes it, but with what was added to the session itself.
     * Spark gives each clone a copy of all files and cached rows, which stays until the server ends.
     */
    public SparkSession cloneOf(SparkSession session) throws ReflectiveOperationException {
        SparkSession clone = new SparkSession(session.sparkContext(), Option.apply(session.sharedState()),
            Option.apply(session.sessionState()), session.extensions(), Map$.MODULE$.empty(), Map$.MODULE$.empty());
        final ArtifactManager added = session.artifactManager();
        Field maker = SessionState.class.getDeclaredField("artifactManagerBuilder");
        maker.setAccessible(true);
        maker.set(clone.sessionState(), new AbstractFunction0<ArtifactManager>() { // called when it is first wanted
            @Override
            public ArtifactManager apply() {
                return added;
            }
        });
        return clone;
    }

    /**
     * Lets tasks of a session's queries have a jar, once. Tasks of a session that has artifacts of its own see no jar that
     * was added for others, nor one that was added for all after its first query.
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
