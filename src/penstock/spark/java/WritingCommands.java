package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.command.DataWritingCommand;
import org.apache.spark.sql.execution.datasources.V1WriteCommand;
import org.apache.spark.sql.execution.datasources.WriteFiles;

import scala.collection.immutable.Seq;

/** Commands that write the rows of a query. The query does not know its command, so the command marks it. */
final class WritingCommands {
    private static final TreeNodeTag<Object> WRITTEN = new TreeNodeTag<Object>("penstock.written");
    private static final TreeNodeTag<Object> SORT_OF_WRITER = new TreeNodeTag<Object>("penstock.sort-of-writer");

    private WritingCommands() {
    }

    /** Whether a plan is a command; or the union of commands that Spark makes of FROM t INSERT ... INSERT ... */
    static boolean areNoQuery(LogicalPlan plan) {
        if (plan instanceof Command || plan instanceof WriteFiles || plan instanceof CommandResult) {
            return true;
        }
        boolean areCommands = plan instanceof Union;
        for (Object child : Catalyst.each(plan.children())) {
            areCommands = areCommands && child instanceof Command;
        }
        return areCommands;
    }

    /**
     * Marks the query of a writing command with the columns that become folders, and whether rows go to buckets.
     *
     * Spark sorts the rows of each task for the writer. This sort stays Spark's, so that what is below it can be divided
     * among other tasks.
     */
    static void mark(LogicalPlan plan) {
        LogicalPlan query;
        List<Object> folders = new ArrayList<>();
        boolean hasBuckets = false;
        if (plan instanceof WriteFiles) {
            query = ((WriteFiles) plan).child();
            addNames(folders, ((WriteFiles) plan).partitionColumns());
            hasBuckets = ((WriteFiles) plan).bucketSpec().isDefined();
        } else if (plan instanceof DataWritingCommand) {
            query = ((DataWritingCommand) plan).query();
            if (plan instanceof V1WriteCommand) {
                addNames(folders, ((V1WriteCommand) plan).partitionColumns());
                hasBuckets = ((V1WriteCommand) plan).bucketSpec().isDefined();
            }
        } else if (plan instanceof V2WriteCommand) {
            query = ((V2WriteCommand) plan).query();
        } else {
            return;
        }
        while (query instanceof Sort && !((Sort) query).global()) {
            query.setTagValue(SORT_OF_WRITER, true);
            query = ((Sort) query).child();
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("folders", folders);
        facts.put("buckets", hasBuckets);
        query.setTagValue(WRITTEN, facts);
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
