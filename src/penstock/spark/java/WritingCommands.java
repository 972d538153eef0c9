package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
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
import scala.collection.immutable.Seq;

/** Commands that write the rows of a query. A query has no link to its command, so the command tags it. */
final class WritingCommands {
    /** Tag of a query whose command deletes old files, or creates a folder, before it requests the rows. */
    static final TreeNodeTag<Object> PREPARES_FOLDER = new TreeNodeTag<Object>("penstock.prepares-folder");

    private static final TreeNodeTag<Object> WRITTEN = new TreeNodeTag<Object>("penstock.written");
    private static final TreeNodeTag<Object> WRITER_SORT = new TreeNodeTag<Object>("penstock.sort-of-writer");

    private static final String SINK_PREFIX = "sink.";

    private WritingCommands() {
    }

    /** Whether a plan is a command. */
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
     * Tags the query of a writing command with the partition columns, whether the table is bucketed, and Penstock's options
     * of the table or the write. The query is tagged only if there are such options, or if the session configures sinks.
     *
     * Spark sorts the rows of each task for the writer. The sort is not delegated, so that its input can be divided among
     * other tasks.
     */
    static void mark(LogicalPlan plan, boolean areSinksConfigured) {
        LogicalPlan query;
        Map<String, Object> options = new HashMap<>();
        Map<String, Object> properties = new HashMap<>();
        List<Object> folders = new ArrayList<>();
        boolean hasBuckets = false;
        if (plan instanceof WriteFiles) {
            query = ((WriteFiles) plan).child();
            addNames(folders, ((WriteFiles) plan).partitionColumns());
            hasBuckets = ((WriteFiles) plan).bucketSpec().isDefined();
            addTableProperties(properties, plan);
            addOptions(options, ((WriteFiles) plan).options());
        } else if (plan instanceof DataWritingCommand) {
            query = ((DataWritingCommand) plan).query();
            if (plan instanceof V1WriteCommand) {
                addNames(folders, ((V1WriteCommand) plan).partitionColumns());
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
        boolean isConfigured = !options.isEmpty() || !properties.isEmpty();
        if (!areSinksConfigured && !isConfigured) {
            return;
        }
        while (query instanceof Sort && !((Sort) query).global()) {
            query.setTagValue(WRITER_SORT, true);
            query = ((Sort) query).child();
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("folders", folders);
        facts.put("buckets", hasBuckets);
        facts.put("options", options);
        facts.put("properties", properties);
        if (isConfigured || !hasOptions(query)) { // the planner visits a command first, then its parts, which have fewer options
            query.setTagValue(WRITTEN, facts);
        }
    }

    /** Whether a query is written with options of Penstock. */
    static boolean hasOptions(LogicalPlan query) {
        Option<?> tag = query.getTagValue(WRITTEN);
        if (tag.isEmpty()) {
            return false;
        }
        Map<?, ?> facts = (Map<?, ?>) tag.get();
        return !((Map<?, ?>) facts.get("options")).isEmpty() || !((Map<?, ?>) facts.get("properties")).isEmpty();
    }

    /** Adds the table properties of the command that contains a plan: the planner visits the command first. */
    private static void addTableProperties(Map<String, Object> target, LogicalPlan part) {
        Option<?> facts = part.getTagValue(WRITTEN);
        if (facts.isDefined()) {
            Map<?, ?> properties = (Map<?, ?>) ((Map<?, ?>) facts.get()).get("properties");
            for (Object key : properties.keySet()) {
                target.put((String) key, properties.get(key));
            }
        }
    }

    private static void addOptions(Map<String, Object> target, scala.collection.immutable.Map<String, String> options) {
        for (Object element : Catalyst.each(options.toSeq())) {
            Tuple2<?, ?> option = (Tuple2<?, ?>) element;
            if (((String) option._1()).startsWith(SINK_PREFIX)) {
                target.put((String) option._1(), option._2());
            }
        }
    }

    static boolean isWriterSort(LogicalPlan plan) {
        return plan.getTagValue(WRITER_SORT).isDefined();
    }

    /** Returns the facts that `mark` attached to a query, null without tag. */
    static Object facts(LogicalPlan query) throws JsonProcessingException {
        return query.getTagValue(WRITTEN).isDefined() ? Answer.of(query.getTagValue(WRITTEN).get()) : null;
    }

    private static void addNames(List<Object> names, Seq<?> columns) {
        for (Object column : Catalyst.each(columns)) {
            names.add(((Attribute) column).name());
        }
    }
}
