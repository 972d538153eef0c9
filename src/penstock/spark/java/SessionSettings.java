package penstock;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution;

import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** Reads and sets the settings of a session, and those that the tasks of a thread see. */
public final class SessionSettings {
    /** Settings of an execution itself: whose it is, not how it runs. */
    private static final String OF_AN_EXECUTION = "spark.sql.execution.";

    /** The local property of threads on which Penstock itself runs queries: the tag of their Spark jobs. */
    static final String INSIDE = "penstock.inside";

    /** Returns the settings of the context and of a session that begin with a prefix; those of the session win. */
    public Object read(SparkSession session, String prefix) throws JsonProcessingException {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Tuple2<?, ?> setting : session.sparkContext().getConf().getAll()) {
            put(found, prefix, setting._1(), setting._2());
        }
        for (Object setting : CollectionConverters.asJava(session.conf().getAll()).entrySet()) {
            put(found, prefix, ((Map.Entry<?, ?>) setting).getKey(), ((Map.Entry<?, ?>) setting).getValue());
        }
        return Answer.of(found);
    }

    private static void put(Map<String, Object> found, String prefix, Object name, Object value) {
        if (((String) name).startsWith(prefix)) {
            found.put((String) name, value);
        }
    }

    /** Sets settings of a session, given as a JSON object of texts. */
    public void set(SparkSession session, String settings) throws JsonProcessingException {
        Map<?, ?> given = (Map<?, ?>) new ObjectMapper().readValue(settings, Object.class);
        for (Object each : given.entrySet()) {
            Map.Entry<?, ?> setting = (Map.Entry<?, ?>) each;
            session.conf().set((String) setting.getKey(), (String) setting.getValue());
        }
    }

    /** Gives a session the settings of another one, and no others. */
    public void putBack(SparkSession session, SparkSession like) {
        Map<?, ?> wanted = CollectionConverters.asJava(like.conf().getAll());
        Map<?, ?> found = CollectionConverters.asJava(session.conf().getAll());
        for (Object name : found.keySet()) {
            if (!wanted.containsKey(name)) {
                session.conf().unset((String) name);
            }
        }
        for (Object each : wanted.entrySet()) {
            Map.Entry<?, ?> setting = (Map.Entry<?, ?>) each;
            if (!setting.getValue().equals(found.get(setting.getKey()))) {
                session.conf().set((String) setting.getKey(), (String) setting.getValue());
            }
        }
    }

    /**
     * Returns the local properties of a vertex's thread: those of the user's thread, and the settings of the session
     * that plans the vertex, which tasks read from there (as SQLExecution.withSQLConfPropagated hands them on).
     *
     * The Spark jobs are known by a tag. They are in the user's job group, if there is one: whoever cancels that group
     * cancels them, too.
     */
    public Properties threadProperties(Properties users, SparkSession session, String tag, String description) {
        Properties found = new Properties();
        for (Object each : users.stringPropertyNames()) {
            String name = (String) each;
            if (!name.startsWith(OF_AN_EXECUTION)) {
                found.setProperty(name, users.getProperty(name));
            }
        }
        Map<?, ?> settings = CollectionConverters.asJava(session.sessionState().conf().getAllConfs());
        for (Object each : settings.entrySet()) {
            Map.Entry<?, ?> setting = (Map.Entry<?, ?>) each;
            if (((String) setting.getKey()).startsWith("spark")) {
                found.setProperty((String) setting.getKey(), (String) setting.getValue());
            }
        }
        String tags = found.getProperty("spark.job.tags");
        found.setProperty("spark.job.tags", tags == null || tags.isEmpty() ? tag : tags + "," + tag);
        if (found.getProperty("spark.jobGroup.id") == null) {
            found.setProperty("spark.jobGroup.id", tag);
        }
        String execution = users.getProperty(SQLExecution.EXECUTION_ID_KEY());
        if (execution == null || users.getProperty("spark.jobGroup.id") == null) { // else the program has said it
            found.setProperty("spark.job.interruptOnCancel", "true");
        }
        String own = found.getProperty("spark.job.description");
        String waiting = execution == null ? "" : " (for SQL execution " + execution + ")";
        found.setProperty("spark.job.description", (own == null ? "" : own + ": ") + description + waiting);
        found.setProperty(INSIDE, tag);
        return found;
    }
}
