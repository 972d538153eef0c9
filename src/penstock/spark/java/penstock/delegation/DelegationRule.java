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
 * Spark's planner calls it for the root of a plan, and for the children if the root was declined. The nodes of a declined
 * query are tagged, so that no part of the query is delegated alone.
 */
public final class DelegationRule {
    /** The decision that a query is delegated; also its key in the counts of `QueryHook`. */
    static final String ACCEPTED = "taken";

    private static final String PREFIX = "spark.penstock.";
    private static final String ENABLED = PREFIX + "enabled";
    private static final String SINK_PARALLELISM = PREFIX + "sink.parallelism";
    private static final String SINK_FILE_SIZE = PREFIX + "sink.target-file-size";
    private static final String NATIVE = PREFIX + "execution.native";
    private static final String THRESHOLD = PREFIX + "execution.batch.adaptive.whole-query-threshold";

    private static final TreeNodeTag<Object> DECLINED = new TreeNodeTag<Object>("penstock.declined"); // of a plan that Spark runs
    /** Tag of a query that was accepted with its command, before the planner visits the query. */
    private static final TreeNodeTag<Object> DECIDED = new TreeNodeTag<Object>("penstock.decided");

    private final long defaultThreshold;
    private final boolean delegatesSmall;
    private final double minExchanges;
    private final Predicate<Object> engine; // tests whether a native engine may compute a plan; null if none may
    private final boolean hasSinkOptions;
    private final String[] settingPrefixes;
    private final long[] hintBounds;

    /** See `query_hook.create_service`; `hintBounds` are exclusive bounds of the advisory sizes that encode a plan hint. */
    DelegationRule(long threshold, boolean delegatesSmall, double minExchanges, Predicate<Object> engine, boolean hasSinkOptions,
            String[] settingPrefixes, long[] hintBounds) {
        this.defaultThreshold = threshold;
        this.delegatesSmall = delegatesSmall;
        this.minExchanges = minExchanges;
        this.engine = engine;
        this.hasSinkOptions = hasSinkOptions;
        this.settingPrefixes = settingPrefixes;
        this.hintBounds = hintBounds;
    }

    /** Whether the active session delegates queries, and this is not a thread of Penstock itself. */
    boolean isEnabled() {
        if (!"true".equalsIgnoreCase(SQLConf.get().getConfString(ENABLED, "true"))) {
            return false;
        }
        Option<?> session = SparkSession.getActiveSession();
        return session.isDefined() && ((SparkSession) session.get()).sparkContext().getLocalProperty(SessionSettings.INSIDE) == null;
    }

    /** Returns ACCEPTED, or why Spark runs a query; null if it was declined before, or if a plan below is the query. */
    String decide(LogicalPlan plan) {
        if (isTagged(plan, DECLINED)) {
            return null;
        }
        if (isTagged(plan, DECIDED)) {
            plan.unsetTagValue(DECIDED);
            return ACCEPTED;
        }
        if (plan instanceof ReturnAnswer) {
            FinalLimits.tag(((ReturnAnswer) plan).child());
            return null; // the planner calls again for the root
        }
        if (plan instanceof RowLevelWrite) { // a rewritten DELETE, UPDATE or MERGE, as for Iceberg tables
            exclude(plan);
            return WritingCommands.ROW_LEVEL_REASON;
        }
        if (WritingCommands.isMultiInsert(plan)) { // AQE runs the stages of all inserts before the first one writes
            exclude(plan);
            return "one of several inserts of the same statement";
        }
        SQLConf conf = SQLConf.get();
        WritingCommands.tagQuery(plan, hasSinkOptions || conf.contains(SINK_PARALLELISM) || conf.contains(SINK_FILE_SIZE));
        if (WritingCommands.isCommand(plan) || isTagged(plan, FinalLimits.IS_LIMIT) || isTagged(plan, WritingCommands.WRITER_SORT)
                || onlyCreatesObjects(plan)) {
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

    /** Decides on the query of a command before the planner visits the query; null if it was declined before. */
    String decideForCommand(InsertIntoHadoopFsRelationCommand command) {
        LogicalPlan below = command.query();
        String decision = decide(below);
        while (decision == null && !isTagged(below, DECLINED) && below.children().size() == 1) {
            below = Catalyst.onlyChild(below);
            decision = decide(below);
        }
        if (ACCEPTED.equals(decision)) {
            below.setTagValue(DECIDED, true);
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
    private static boolean onlyCreatesObjects(LogicalPlan plan) {
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

    /** Tags a plan, so that neither the plan nor a part of it is delegated. */
    public static void exclude(LogicalPlan plan) {
        plan.setTagValue(DECLINED, true);
        for (LogicalPlan below : Catalyst.childrenAndSubqueries(plan)) {
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
        if (delegatesSmall || areQueriesConfigured() || search.hasUserSettings(plan, hintBounds[0], hintBounds[1])
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
        return threshold() > 0 && BucketedTables.savesShuffle(plan) ? BucketedTables.REASON : null;
    }

    /** Whether a native engine computes a small query faster than Spark; the job itself checks the files later. */
    private boolean isFasterNatively(LogicalPlan plan) {
        boolean isNativeOn = engine != null && "true".equalsIgnoreCase(SQLConf.get().getConfString(NATIVE, "true"));
        Option<?> session = SparkSession.getActiveSession();
        return isNativeOn && new ExchangeCount().of(plan, (SparkSession) session.get()) >= minExchanges && engine.test(plan);
    }

    private long threshold() {
        String userValue = SQLConf.get().getConfString(THRESHOLD, null);
        if (userValue == null && !"NO".equalsIgnoreCase(SQLConf.get().getConfString(PREFIX + "execution.shadow", "NO"))) {
            return 0; // shadow mode compares small queries, too
        }
        return userValue == null ? defaultThreshold : SourceBytes.parse(userValue);
    }

    /** Whether the session sets an option that says how queries run. */
    private boolean areQueriesConfigured() {
        for (String name : CollectionConverters.asJava(SQLConf.get().getAllConfs()).keySet()) {
            if (name.startsWith(PREFIX) && !name.equals(ENABLED) && !name.equals(THRESHOLD)) {
                for (String prefix : settingPrefixes) {
                    if (name.startsWith(prefix, PREFIX.length())) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
}
