package penstock.delegation;

import java.util.function.Predicate;

import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ObjectType;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

import penstock.bridge.SessionSettings;
import penstock.plans.BucketedTables;
import penstock.plans.Catalyst;
import penstock.plans.ExchangeCount;
import penstock.plans.PlanSearch;
import penstock.plans.RowLayout;
import penstock.plans.SourceBytes;

/**
 * Decides which queries Spark delegates to Penstock. It runs for every query of a session, so it neither calls Python nor
 * reads data; it only lists the files of small tables if a native engine may compute the query.
 *
 * Spark's planner calls it for the root of a plan first, and then for the children if the root was declined. The nodes
 * of a declined query are marked, so that no part of it is delegated alone.
 */
public final class DelegationRule {
    static final String ACCEPTED = "taken";

    private static final String PREFIX = "spark.penstock.";
    private static final String ENABLED = PREFIX + "enabled";
    private static final String SINK_PARALLELISM = PREFIX + "sink.parallelism";
    private static final String SINK_FILE_SIZE = PREFIX + "sink.target-file-size";
    private static final String NATIVE = PREFIX + "execution.native";
    private static final String THRESHOLD = PREFIX + "execution.batch.adaptive.whole-query-threshold";

    private static final TreeNodeTag<Object> DECLINED = new TreeNodeTag<Object>("penstock.left-to-spark");
    private static final TreeNodeTag<Object> ANSWERED = new TreeNodeTag<Object>("penstock.answered");

    private final long threshold;
    private final boolean takesSmall;
    private final double fewestExchanges;
    private final Predicate<Object> engine;
    private final boolean dividesWrites;
    private final String[] prefixes;
    private final long[] hints;

    /**
     * @param threshold Spark runs queries whose sources hold fewer bytes
     * @param takesSmall whether to delegate small queries, too: an option configures how queries run
     * @param fewestExchanges the exchanges from which on a native engine computes a small query faster
     * @param engine whether the native engine can compute a query completely; null without engine
     * @param dividesWrites whether an option configures the tasks or files of sinks
     * @param prefixes prefixes of session settings that configure how queries run
     * @param hints exclusive bounds of the advisory sizes that encode a plan hint
     */
    DelegationRule(long threshold, boolean takesSmall, double fewestExchanges, Predicate<Object> engine, boolean dividesWrites,
            String[] prefixes, long[] hints) {
        this.threshold = threshold;
        this.takesSmall = takesSmall;
        this.fewestExchanges = fewestExchanges;
        this.engine = engine;
        this.dividesWrites = dividesWrites;
        this.prefixes = prefixes;
        this.hints = hints;
    }

    /** Whether the active session delegates queries, and this is not a thread of Penstock itself. */
    boolean isOn() {
        if (!"true".equalsIgnoreCase(SQLConf.get().getConfString(ENABLED, "true"))) {
            return false;
        }
        Option<?> session = SparkSession.getActiveSession();
        return session.isDefined() && ((SparkSession) session.get()).sparkContext().getLocalProperty(SessionSettings.INSIDE) == null;
    }

    /** Returns ACCEPTED, or the reason why Spark runs a query; null if the plan is not a query. */
    String decide(LogicalPlan plan) {
        if (isTagged(plan, DECLINED)) {
            return null;
        }
        if (isTagged(plan, ANSWERED)) {
            plan.unsetTagValue(ANSWERED);
            return ACCEPTED;
        }
        if (plan instanceof ReturnAnswer) {
            FinalLimits.mark(((ReturnAnswer) plan).child());
            return null; // the planner calls again for the root
        }
        if (plan instanceof RowLevelWrite) { // such a command as rewritten by Spark, such as for Iceberg tables
            exclude(plan);
            return WritingCommands.ROW_LEVEL_REASON;
        }
        if (WritingCommands.isMultiInsert(plan)) { // AQE runs the stages of all inserts before the first one writes
            exclude(plan);
            return "one of several inserts of the same statement";
        }
        SQLConf conf = SQLConf.get();
        WritingCommands.mark(plan, dividesWrites || conf.contains(SINK_PARALLELISM) || conf.contains(SINK_FILE_SIZE));
        if (WritingCommands.isCommand(plan) || isTagged(plan, FinalLimits.IS_LIMIT) || isTagged(plan, WritingCommands.WRITER_SORT)
                || onlyMakesObjects(plan)) {
            return null;
        }
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            if (node instanceof LogicalQueryStage) { // AQE replans a query that Spark runs
                exclude(plan);
                return null;
            }
        }
        String reason = declineReason(plan);
        if (reason == null && WritingCommands.isRowLevelRunning()) {
            reason = WritingCommands.ROW_LEVEL_REASON;
        }
        if (reason != null) {
            exclude(plan);
            return reason;
        }
        return ACCEPTED;
    }

    /** Returns the decision on the query of a command, before the planner asks for it; null if it was declined before. */
    String decideForCommand(InsertIntoHadoopFsRelationCommand command) {
        LogicalPlan below = command.query();
        String decision = decide(below);
        while (decision == null && !isTagged(below, DECLINED) && below.children().size() == 1) {
            below = Catalyst.onlyChild(below);
            decision = decide(below);
        }
        if (ACCEPTED.equals(decision)) {
            below.setTagValue(ANSWERED, true);
            if (command.mode() != SaveMode.Append && WriteExec.isNeeded(below, true)) {
                below.setTagValue(WritingCommands.PREPARES_FOLDER, true);
            }
        }
        return decision;
    }

    /**
     * Whether a plan only creates JVM objects row by row, as at the end of Dataset.rdd and of typed functions of Scala.
     * Objects cannot be exchanged, so Spark creates them from the rows that Penstock returns.
     */
    private static boolean onlyMakesObjects(LogicalPlan plan) {
        return returnsObjects(plan) && plan.children().size() == 1 && RowLayout.isNarrowOperator(plan);
    }

    private static boolean returnsObjects(LogicalPlan plan) {
        for (Attribute column : Catalyst.each(plan.output())) {
            if (column.dataType() instanceof ObjectType) {
                return true;
            }
        }
        return false;
    }

    private static boolean isTagged(LogicalPlan plan, TreeNodeTag<Object> tag) {
        return plan.getTagValue(tag).isDefined();
    }

    /** Marks a plan, so that neither the plan nor a part of it is delegated. */
    public static void exclude(LogicalPlan plan) {
        plan.setTagValue(DECLINED, true);
        for (LogicalPlan below : Catalyst.below(plan)) {
            exclude(below);
        }
    }

    private String declineReason(LogicalPlan plan) {
        if (plan.isStreaming()) {
            return "a micro-batch of a streaming query";
        }
        if (returnsObjects(plan)) {
            return "returns JVM objects instead of rows";
        }
        PlanSearch search = new PlanSearch();
        if (search.observesMetrics(plan)) {
            return "observes metrics";
        }
        if (RowLayout.dependsOnPartitions(plan)) {
            return "its rows depend on the partitions in which Spark reads them";
        }
        boolean isNarrow = RowLayout.isNarrow(plan);
        if (isNarrow && isTagged(plan, FinalLimits.BELOW_LIMIT)) {
            return "a limit of rows that need no shuffle";
        }
        if (isNarrow && RowLayout.readsOnlyCache(plan)) {
            return "reads cached rows only, and needs no shuffle";
        }
        if (takesSmall || areQueriesConfigured() || search.hasUserSettings(plan, hints[0], hints[1])
                || WritingCommands.hasOptions(plan)) {
            return null;
        }
        if (isNarrow && RowLayout.hasStablePartitions(plan)) {
            return "needs no shuffle";
        }
        if (!SQLConf.get().adaptiveExecutionEnabled()) {
            return "adaptive execution is off, so each shuffle has the configured number of partitions";
        }
        if (!SQLConf.get().coalesceShufflePartitionsEnabled()) {
            return "adaptive execution may not coalesce partitions, so each shuffle has the configured number of partitions";
        }
        if (SourceBytes.total(plan) < threshold()) {
            return isFasterNatively(plan) ? null : "small";
        }
        return threshold() > 0 && BucketedTables.saveShuffle(plan) ? BucketedTables.REASON : null;
    }

    /** Whether a native engine computes a small query faster; the job checks the files later. */
    private boolean isFasterNatively(LogicalPlan plan) {
        boolean isOn = engine != null && "true".equalsIgnoreCase(SQLConf.get().getConfString(NATIVE, "true"));
        Option<?> session = SparkSession.getActiveSession();
        return isOn && new ExchangeCount().of(plan, (SparkSession) session.get()) >= fewestExchanges && engine.test(plan);
    }

    private long threshold() {
        String userValue = SQLConf.get().getConfString(THRESHOLD, null);
        if (userValue == null && !"NO".equalsIgnoreCase(SQLConf.get().getConfString(PREFIX + "execution.shadow", "NO"))) {
            return 0; // small queries are compared, too
        }
        return userValue == null ? threshold : SourceBytes.parsed(userValue);
    }

    private boolean areQueriesConfigured() {
        for (String name : CollectionConverters.asJava(SQLConf.get().getAllConfs()).keySet()) {
            if (name.startsWith(PREFIX) && !name.equals(ENABLED) && !name.equals(THRESHOLD)) {
                for (String prefix : prefixes) {
                    if (name.startsWith(prefix, PREFIX.length())) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
}
