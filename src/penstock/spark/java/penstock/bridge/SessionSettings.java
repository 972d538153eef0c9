package penstock.bridge;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution;

import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** Reads and changes the settings of a session, and combines the local properties of a thread. */
public final class SessionSettings {
    /** Prefix of properties that identify an SQL execution, which a vertex's thread must not inherit. */
    private static final String EXECUTION_PREFIX = "spark.sql.execution.";

    /** Local property of threads on which Penstock itself runs queries: the tag of their Spark jobs. */
    public static final String INSIDE = "penstock.inside";

    /** Returns the settings whose names have a prefix; a setting of the session overrides that of the Spark context. */
    public Object read(SparkSession session, String prefix) throws JsonProcessingException {
        Map<String, Object> settings = new LinkedHashMap<>();
        for (Tuple2<?, ?> setting : session.sparkContext().getConf().getAll()) {
            put(settings, prefix, setting._1(), setting._2());
        }
        for (Map.Entry<?, ?> setting : CollectionConverters.asJava(session.conf().getAll()).entrySet()) {
            put(settings, prefix, setting.getKey(), setting.getValue());
        }
        return Answer.of(settings);
    }

    /** Returns the values of settings in a session, or their defaults; names that Spark does not know are left out. */
    public Object effective(SparkSession session, List<?> names) throws JsonProcessingException {
        Map<String, Object> settings = new LinkedHashMap<>();
        for (Object name : names) {
            Option<?> value = session.conf().getOption((String) name);
            if (value.isDefined()) {
                settings.put((String) name, value.get());
            }
        }
        return Answer.of(settings);
    }

    private static void put(Map<String, Object> settings, String prefix, Object name, Object value) {
        if (((String) name).startsWith(prefix)) {
            settings.put((String) name, value);
        }
    }

    /** Changes settings of a session, passed as a JSON object of strings. */
    public void set(SparkSession session, String settings) throws JsonProcessingException {
        Map<?, ?> changes = (Map<?, ?>) new ObjectMapper().readValue(settings, Object.class);
        for (Map.Entry<?, ?> setting : changes.entrySet()) {
            session.conf().set((String) setting.getKey(), (String) setting.getValue());
        }
    }

    /** Sets the settings of a session to exactly those of another session. */
    public void restore(SparkSession session, SparkSession template) {
        Map<?, ?> target = CollectionConverters.asJava(template.conf().getAll());
        Map<?, ?> current = CollectionConverters.asJava(session.conf().getAll());
        for (Object name : current.keySet()) {
            if (!target.containsKey(name)) {
                session.conf().unset((String) name);
            }
        }
        for (Map.Entry<?, ?> setting : target.entrySet()) {
            if (!setting.getValue().equals(current.get(setting.getKey()))) {
                session.conf().set((String) setting.getKey(), (String) setting.getValue());
            }
        }
    }

    /**
     * Returns the local properties of a vertex's thread: those of the user's thread, and the settings of the session that
     * plans the vertex, which tasks read from there (like SQLExecution.withSQLConfPropagated).
     *
     * The Spark jobs have a tag. They belong to the user's job group, if there is one, so that cancelling the group also
     * cancels them.
     */
    public Properties threadProperties(Properties userProperties, SparkSession session, String tag, String description) {
        Properties properties = new Properties();
        for (String name : userProperties.stringPropertyNames()) {
            if (!name.startsWith(EXECUTION_PREFIX)) {
                properties.setProperty(name, userProperties.getProperty(name));
            }
        }
        Map<?, ?> settings = CollectionConverters.asJava(session.sessionState().conf().getAllConfs());
        for (Map.Entry<?, ?> setting : settings.entrySet()) {
            if (((String) setting.getKey()).startsWith("spark")) {
                properties.setProperty((String) setting.getKey(), (String) setting.getValue());
            }
        }
        String tags = properties.getProperty("spark.job.tags");
        properties.setProperty("spark.job.tags", tags == null || tags.isEmpty() ? tag : tags + "," + tag);
        if (properties.getProperty("spark.jobGroup.id") == null) {
            properties.setProperty("spark.jobGroup.id", tag);
        }
        String execution = userProperties.getProperty(SQLExecution.EXECUTION_ID_KEY());
        if (execution == null || userProperties.getProperty("spark.jobGroup.id") == null) { // else the user has chosen, by setJobGroup
            properties.setProperty("spark.job.interruptOnCancel", "true");
        }
        String userDescription = properties.getProperty("spark.job.description");
        String suffix = execution == null ? "" : " (for SQL execution " + execution + ")";
        properties.setProperty("spark.job.description", (userDescription == null ? "" : userDescription + ": ") + description + suffix);
        properties.setProperty(INSIDE, tag);
        return properties;
    }
}
