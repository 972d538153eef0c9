package penstock.delegation;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.command.DataWritingCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.V1WriteCommand;
import org.apache.spark.sql.execution.datasources.WriteFiles;

import scala.Option;
import scala.Tuple2;

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/** Commands that write the rows of a query. A query has no link to its command, so it is tagged. */
final class WritingCommands {
    /** Tag of a query whose command deletes old files, or creates a folder, before it requests the rows. */
    static final TreeNodeTag<Object> PREPARES_FOLDER = new TreeNodeTag<Object>("penstock.prepares-folder");

    /** Tag of a query whose command writes its rows. */
    static final TreeNodeTag<Object> IS_WRITTEN = new TreeNodeTag<Object>("penstock.is-written");
    /** Tag of a query with facts about the command that writes its rows; see `tagQuery`. */
    static final TreeNodeTag<Object> WRITE_FACTS = new TreeNodeTag<Object>("penstock.written");
    /** Tag of a sort that Spark has added for the writer. */
    static final TreeNodeTag<Object> WRITER_SORT = new TreeNodeTag<Object>("penstock.sort-of-writer");

    /** DELETE, UPDATE and MERGE report the number of changed rows; a task that runs again counts its rows again. */
    static final String ROW_LEVEL_REASON = "a query of DELETE, UPDATE or MERGE, which counts rows in its own operators";

    private static final String DELTA = "org.apache.spark.sql.delta.commands.";
    /** Prefixes of the classes that implement DELETE, UPDATE and MERGE for Delta tables with ordinary queries. */
    private static final String[] DELTA_COMMANDS = {DELTA + "DeleteCommand", DELTA + "UpdateCommand", DELTA + "MergeInto"};

    static boolean isCommand(LogicalPlan plan) {
        return plan instanceof Command || plan instanceof WriteFiles || plan instanceof CommandResult;
    }

    /** Whether a plan is the union of commands of a multi-insert (FROM t INSERT ... INSERT ...). */
    static boolean isMultiInsert(LogicalPlan plan) {
        boolean areCommands = plan instanceof Union;
        for (Object child : Catalyst.each(plan.children())) {
            areCommands = areCommands && child instanceof Command;
        }
        return areCommands;
    }

    /**
     * Tags the query of a writing command. If Penstock's options for sinks are set for the session, the table or the write,
     * the query is also tagged with these options, the partition columns, and whether the table is bucketed.
     *
     * Spark sorts the rows of each task for the writer. The sort is not delegated, so that its input can be divided among
     * other tasks.
     */
    static void tagQuery(LogicalPlan plan, boolean areSinksConfigured) {
        LogicalPlan query;
        Map<String, Object> options = new HashMap<>();
        Map<String, Object> properties = new HashMap<>();
        List<Object> partitionColumns = new ArrayList<>();
        boolean hasBuckets = false;
        if (plan instanceof WriteFiles) {
            query = ((WriteFiles) plan).child();
            partitionColumns.addAll(Catalyst.names(((WriteFiles) plan).partitionColumns()));
            hasBuckets = ((WriteFiles) plan).bucketSpec().isDefined();
            addTableProperties(properties, plan);
            addOptions(options, ((WriteFiles) plan).options());
        } else if (plan instanceof DataWritingCommand) {
            query = ((DataWritingCommand) plan).query();
            if (plan instanceof V1WriteCommand) {
                partitionColumns.addAll(Catalyst.names(((V1WriteCommand) plan).partitionColumns()));
                hasBuckets = ((V1WriteCommand) plan).bucketSpec().isDefined();
            }
            if (plan instanceof InsertIntoHadoopFsRelationCommand) {
                Option<?> table = ((InsertIntoHadoopFsRelationCommand) plan).catalogTable();
                if (table.isDefined()) {
                    addOptions(properties, ((CatalogTable) table.get()).properties());
                }
                addOptions(options, ((InsertIntoHadoopFsRelationCommand) plan).options());
            }
        } else if (plan instanceof V2WriteCommand) {
            query = ((V2WriteCommand) plan).query();
        } else {
            return;
        }
        query.setTagValue(IS_WRITTEN, true);
        boolean isConfigured = !options.isEmpty() || !properties.isEmpty();
        if (!areSinksConfigured && !isConfigured) {
            return;
        }
        while (query instanceof Sort && !((Sort) query).global()) {
            query.setTagValue(WRITER_SORT, true);
            query = ((Sort) query).child();
        }
        Map<String, Object> facts = Answer.facts("folders", partitionColumns, "buckets", hasBuckets, "options", options,
                "properties", properties);
        if (isConfigured || !hasOptions(query)) { // the planner visits a command before its parts, which have fewer options
            query.setTagValue(WRITE_FACTS, facts);
        }
    }

    /** Whether the rows of a query are written with options of Penstock. */
    static boolean hasOptions(LogicalPlan query) {
        Option<?> tag = query.getTagValue(WRITE_FACTS);
        if (tag.isEmpty()) {
            return false;
        }
        Map<?, ?> facts = (Map<?, ?>) tag.get();
        return !((Map<?, ?>) facts.get("options")).isEmpty() || !((Map<?, ?>) facts.get("properties")).isEmpty();
    }

    /** Adds the table properties of the command that contains a plan: the planner visits the command first. */
    private static void addTableProperties(Map<String, Object> target, LogicalPlan part) {
        Option<?> facts = part.getTagValue(WRITE_FACTS);
        if (facts.isDefined()) {
            Map<?, ?> properties = (Map<?, ?>) ((Map<?, ?>) facts.get()).get("properties");
            for (Object key : properties.keySet()) {
                target.put((String) key, properties.get(key));
            }
        }
    }

    private static void addOptions(Map<String, Object> target, scala.collection.immutable.Map<String, String> options) {
        for (Tuple2<?, ?> option : Catalyst.each(options.toSeq())) {
            if (((String) option._1()).startsWith("sink.")) {
                target.put((String) option._1(), option._2());
            }
        }
    }

    /** Whether this thread is running a DELETE, UPDATE or MERGE of Delta. */
    static boolean isRowLevelRunning() {
        for (StackTraceElement call : new Throwable().getStackTrace()) {
            for (String command : DELTA_COMMANDS) {
                if (call.getClassName().startsWith(command)) {
                    return true;
                }
            }
        }
        return false;
    }
}
