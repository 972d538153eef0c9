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

/** Commands that write the rows of a query. The query does not know its command, so the command marks it. */
final class WritingCommands {
    /** Of a query whose command deletes old files, or makes a folder, before it asks for the rows. */
    static final TreeNodeTag<Object> PREPARES_FOLDER = new TreeNodeTag<Object>("penstock.prepares-folder");

    private static final TreeNodeTag<Object> WRITTEN = new TreeNodeTag<Object>("penstock.written");
    private static final TreeNodeTag<Object> SORT_OF_WRITER = new TreeNodeTag<Object>("penstock.sort-of-writer");

    private static final String OF_SINKS = "sink.";

    private WritingCommands() {
    }

    /** Whether a plan is a command. */
    static boolean isNoQuery(LogicalPlan plan) {
        return plan instanceof Command || plan instanceof WriteFiles || plan instanceof CommandResult;
    }

    /** Whether a plan is the union of commands that Spark makes of FROM t INSERT ... INSERT ... */
    static boolean areSeveral(LogicalPlan plan) {
        boolean areCommands = plan instanceof Union;
        for (Object child : Catalyst.each(plan.children())) {
            areCommands = areCommands && child instanceof Command;
        }
        return areCommands;
    }

    /**
     * Marks the query of a writing command with the columns that become folders, whether rows go to buckets, and the
     * options that the table or the user gives to the write and that are Penstock's. It is marked if there are such
     * options, or if options of the session say something of sinks.
     *
     * Spark sorts the rows of each task for the writer. This sort stays Spark's, so that what is below it can be divided
     * among other tasks.
     */
    static void mark(LogicalPlan plan, boolean saysOfSinks) {
        LogicalPlan query;
        Map<String, Object> options = new HashMap<>();
        Map<String, Object> properties = new HashMap<>();
        List<Object> folders = new ArrayList<>();
        boolean hasBuckets = false;
        if (plan instanceof WriteFiles) {
            query = ((WriteFiles) plan).child();
            addNames(folders, ((WriteFiles) plan).partitionColumns());
            hasBuckets = ((WriteFiles) plan).bucketSpec().isDefined();
            addKnown(properties, plan);
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
        boolean hasOptions = !options.isEmpty() || !properties.isEmpty();
        if (!saysOfSinks && !hasOptions) {
            return;
        }
        while (query instanceof Sort && !((Sort) query).global()) {
            query.setTagValue(SORT_OF_WRITER, true);
            query = ((Sort) query).child();
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("folders", folders);
        facts.put("buckets", hasBuckets);
        facts.put("options", options);
        facts.put("properties", properties);
        if (hasOptions || !haveOptions(query)) { // Spark asks for a command, and for its parts, which know less
            query.setTagValue(WRITTEN, facts);
        }
    }

    /** Whether a query is written with options that are Penstock's. */
    static boolean haveOptions(LogicalPlan query) {
        Option<?> found = query.getTagValue(WRITTEN);
        if (found.isEmpty()) {
            return false;
        }
        Map<?, ?> facts = (Map<?, ?>) found.get();
        return !((Map<?, ?>) facts.get("options")).isEmpty() || !((Map<?, ?>) facts.get("properties")).isEmpty();
    }

    /** Adds the properties of a table that the command knew of which a plan is a part: Spark asks for it before. */
    private static void addKnown(Map<String, Object> found, LogicalPlan part) {
        Option<?> facts = part.getTagValue(WRITTEN);
        if (facts.isDefined()) {
            Map<?, ?> properties = (Map<?, ?>) ((Map<?, ?>) facts.get()).get("properties");
            for (Object key : properties.keySet()) {
                found.put((String) key, properties.get(key));
            }
        }
    }

    private static void addOptions(Map<String, Object> found, scala.collection.immutable.Map<String, String> options) {
        for (Object each : Catalyst.each(options.toSeq())) {
            Tuple2<?, ?> option = (Tuple2<?, ?>) each;
            if (((String) option._1()).startsWith(OF_SINKS)) {
                found.put((String) option._1(), option._2());
            }
        }
    }

    static boolean isSortOfWriter(LogicalPlan plan) {
        return plan.getTagValue(SORT_OF_WRITER).isDefined();
    }

    /** Returns what `mark` found out of a query's command, null if it has none. */
    static Object facts(LogicalPlan query) throws JsonProcessingException {
        return query.getTagValue(WRITTEN).isDefined() ? Answer.of(query.getTagValue(WRITTEN).get()) : null;
    }

    private static void addNames(List<Object> names, Seq<?> columns) {
        for (Object column : Catalyst.each(columns)) {
            names.add(((Attribute) column).name());
        }
    }
}
