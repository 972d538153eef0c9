package penstock;

import java.util.Map;

import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ObjectType;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which queries Penstock takes. It is asked for every query of a session, so nothing here calls Python or
 * reads data; only files of small tables are listed, where DuckDB may compute the query.
 *
 * Spark's planner asks for the root of a plan first, and for what lies below where the root was not taken. The nodes of
 * a query that was left to Spark are marked, so that no part of it is taken alone.
 */
public final class HandoverRule {
    static final String TAKEN = "taken";

    private static final String PREFIX = "spark.penstock.";
    private static final String ENABLED = PREFIX + "enabled";
    private static final String[] OF_SINKS = {PREFIX + "sink.parallelism", PREFIX + "sink.target-file-size"};
    private static final String THRESHOLD = PREFIX + "execution.batch.adaptive.whole-query-threshold";

    private static final TreeNodeTag<Object> LEFT_TO_SPARK = new TreeNodeTag<Object>("penstock.left-to-spark");
    private static final TreeNodeTag<Object> ANSWERED = new TreeNodeTag<Object>("penstock.answered");

    private final long threshold;
    private final boolean takesSmall;
    private final double fewestExchanges;
    private final boolean dividesWrites;
    private final String[] prefixes;
    private final long[] hints;

    /**
     * @param threshold Spark runs queries whose sources hold fewer bytes
     * @param takesSmall whether something was said of how queries are to run, so that all are taken
     * @param fewestExchanges from so many on DuckDB computes a small query sooner; 0 if it computes none
     * @param dividesWrites whether something was said of the tasks or files of sinks
     * @param prefixes of the settings that say so for a session
     * @param hints between which two sizes an exchange's advisory size is a hint that says so
     */
    HandoverRule(long threshold, boolean takesSmall, double fewestExchanges, boolean dividesWrites, String[] prefixes,
            long[] hints) {
        this.threshold = threshold;
        this.takesSmall = takesSmall;
        this.fewestExchanges = fewestExchanges;
        this.dividesWrites = dividesWrites;
        this.prefixes = prefixes;
        this.hints = hints;
    }

    /** Whether the active session is one whose queries Penstock may take, and this is not one of its own threads. */
    boolean isOn() {
        if (!"true".equalsIgnoreCase(SQLConf.get().getConfString(ENABLED, "true"))) {
            return false;
        }
        Option<?> session = SparkSession.getActiveSession();
        return session.isDefined() && ((SparkSession) session.get()).sparkContext().getLocalProperty(SessionSettings.INSIDE) == null;
    }

    /** Returns TAKEN, or why a query is left to Spark; null of what is no query. */
    String answer(LogicalPlan plan) {
        if (isTagged(plan, LEFT_TO_SPARK)) {
            return null;
        }
        if (isTagged(plan, ANSWERED)) {
            plan.unsetTagValue(ANSWERED);
            return TAKEN;
        }
        if (plan instanceof ReturnAnswer) {
            LastLimits.mark(((ReturnAnswer) plan).child());
            return null; // the planner asks for the root next
        }
        if (RowLevelCommands.isOne(plan)) {
            leave(plan);
            return RowLevelCommands.WHY;
        }
        if (WritingCommands.areSeveral(plan)) { // AQE runs the stages of all of them before the first one writes
            leave(plan);
            return "one of several inserts of a statement";
        }
        WritingCommands.mark(plan, saysOfSinks());
        if (WritingCommands.isNoQuery(plan) || LastLimits.isOne(plan) || WritingCommands.isSortOfWriter(plan) || makesObjects(plan)) {
            return null;
        }
        if (has(plan, LogicalQueryStage.class)) { // AQE plans a query again that Spark runs
            leave(plan);
            return null;
        }
        String why = whyLeft(plan);
        if (why == null && RowLevelCommands.isRunning()) {
            why = RowLevelCommands.WHY;
        }
        if (why != null) {
            leave(plan);
            return why;
        }
        return TAKEN;
    }

    /** Returns the answer for the query of a command, before the planner asks for it; null if it has been left. */
    String answerOfQuery(InsertIntoHadoopFsRelationCommand command) {
        LogicalPlan below = command.query();
        String answer = answer(below);
        while (answer == null && !isTagged(below, LEFT_TO_SPARK) && below.children().size() == 1) {
            below = Catalyst.onlyChild(below);
            answer = answer(below);
        }
        if (TAKEN.equals(answer)) {
            below.setTagValue(ANSWERED, true);
            if (command.mode() != SaveMode.Append && WriteExec.isNeeded(below, true)) {
                below.setTagValue(WritingCommands.PREPARES_FOLDER, true);
            }
        }
        return answer;
    }

    /**
     * Whether a plan does no more than make objects of the JVM, row by row, which is how Dataset.rdd and typed functions
     * of Scala end. An object cannot be written to an exchange, so Spark makes them of the rows that Penstock gives.
     */
    private static boolean makesObjects(LogicalPlan plan) {
        return givesObjects(plan) && plan.children().size() == 1 && RowLayout.isNarrowItself(plan);
    }

    private static boolean givesObjects(LogicalPlan plan) {
        for (Object column : Catalyst.each(plan.output())) {
            if (((Attribute) column).dataType() instanceof ObjectType) {
                return true;
            }
        }
        return false;
    }

    private static boolean isTagged(LogicalPlan plan, TreeNodeTag<Object> tag) {
        return plan.getTagValue(tag).isDefined();
    }

    /** Marks a plan, so that neither it nor a part of it is taken. */
    static void leave(LogicalPlan plan) {
        plan.setTagValue(LEFT_TO_SPARK, true);
        for (Object below : Catalyst.below(plan)) {
            leave((LogicalPlan) below);
        }
    }

    private String whyLeft(LogicalPlan plan) {
        if (plan.isStreaming()) {
            return "a micro-batch of a streaming query";
        }
        if (givesObjects(plan)) {
            return "gives objects instead of rows";
        }
        PlanSearch search = new PlanSearch();
        if (search.observesMetrics(plan)) {
            return "observes metrics";
        }
        if (RowLayout.decidesValues(plan)) {
            return "its rows depend on the partitions in which Spark reads them";
        }
        boolean isNarrow = RowLayout.isNarrow(plan);
        if (isNarrow && LastLimits.areAbove(plan)) {
            return "a limit of rows that need no shuffle";
        }
        if (isNarrow && RowLayout.isCached(plan)) {
            return "reads cached rows only, and needs no shuffle";
        }
        if (takesSmall || settingsSayHow() || search.saysHow(plan, hints[0], hints[1])
                || WritingCommands.haveOptions(plan)) {
            return null;
        }
        if (isNarrow && RowLayout.isOfSpark(plan)) {
            return "needs no shuffle";
        }
        if (!SQLConf.get().adaptiveExecutionEnabled()) {
            return "adaptive execution is off, so each shuffle has the number of partitions that is set";
        }
        if (!SQLConf.get().coalesceShufflePartitionsEnabled()) {
            return "adaptive execution may not merge partitions, so each shuffle has the number that is set";
        }
        if (SourceBytes.of(plan) < threshold()) {
            return NativeQueries.takeSmall(plan, fewestExchanges) ? null : "small";
        }
        return threshold() > 0 && BucketedTables.areUsed(plan) ? BucketedTables.WHY : null;
    }

    private long threshold() {
        String given = SQLConf.get().getConfString(THRESHOLD, null);
        if (given == null && !"NO".equalsIgnoreCase(SQLConf.get().getConfString(PREFIX + "execution.shadow", "NO"))) {
            return 0; // small queries are compared too
        }
        return given == null ? threshold : SourceBytes.parsed(given);
    }

    private boolean saysOfSinks() {
        boolean says = dividesWrites;
        for (int i = 0; i < OF_SINKS.length; i++) {
            says = says || SQLConf.get().contains(OF_SINKS[i]);
        }
        return says;
    }

    private boolean settingsSayHow() {
        Map<?, ?> settings = CollectionConverters.asJava(SQLConf.get().getAllConfs());
        for (Object each : settings.keySet()) {
            String name = (String) each;
            if (name.startsWith(PREFIX) && !name.equals(ENABLED) && !name.equals(THRESHOLD)) {
                for (int i = 0; i < prefixes.length; i++) {
                    if (name.startsWith(prefixes[i], PREFIX.length())) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    private static boolean has(LogicalPlan plan, Class<?> kind) {
        boolean found = kind.isInstance(plan);
        for (Object below : Catalyst.below(plan)) {
            found = found || has((LogicalPlan) below, kind);
        }
        return found;
    }
}
