package penstock.duckdb;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

import penstock.bridge.Answer;
import penstock.exchange.ColumnsToRows;
import penstock.exchange.ScanMetrics;
import penstock.plans.Catalyst;

/** Finds the parts of a physical plan that DuckDB can run; see `parts`. */
public final class NativeParts {
    /** Returns the maximal parts that DuckDB can run, and the reason for each scan outside of them. */
    public Answer find(SparkPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        visit(plan, null, facts, handles);
        return Answer.of(facts, handles);
    }

    private static void visit(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        String reason;
        try {
            NativePart part = new NativePart(plan);
            if (part.computesAnything()) {
                add(facts(part, above), null, facts, plan, handles);
            } else {
                addDeclined(above == null ? "nothing is computed from it" : above, "", facts, plan, handles);
            }
            return;
        } catch (NativeSql.Declined declined) {
            reason = declined.getMessage();
            if (plan instanceof FileSourceScanExec) {
                addDeclined(reason, NativeScan.table((FileSourceScanExec) plan), facts, plan, handles);
                return;
            }
        }
        reason = NativePart.EXCHANGE.equals(reason) ? null : reason;
        if (!addScattered(plan, reason, facts, handles)) {
            for (SparkPlan child : Catalyst.each(plan.children())) {
                visit(child, reason, facts, handles);
            }
        }
    }

    /** Adds the input of an exchange, or of an aggregate that needs one, as a part that writes columns; false if unsupported. */
    private static boolean addScattered(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        try {
            Object scatter = NativeScatter.of(plan);
            if (scatter == null) {
                return false;
            }
            SparkPlan child = Catalyst.onlyChild(plan);
            Map<String, Object> partFacts = facts(new NativePart(child), above);
            partFacts.put("scatter", scatter);
            add(partFacts, plan instanceof ShuffleExchangeExec ? plan : null, facts, child, handles);
            return true;
        } catch (NativeSql.Declined declined) {
            return false;
        }
    }

    private static void addDeclined(String reason, String table, List<Object> facts, SparkPlan node, List<Object> handles) {
        add(Answer.facts("declined", reason, "table", table), null, facts, node, handles);
    }

    private static void add(Map<String, Object> partFacts, SparkPlan exchange, List<Object> facts, SparkPlan node,
            List<Object> handles) {
        facts.add(partFacts);
        handles.add(node);
        handles.add(exchange == null ? node : exchange);
    }

    private static Map<String, Object> facts(NativePart part, String above) throws NativeSql.Declined {
        FileSourceScanExec scan = part.scan;
        if (scan != null) {
            NativeFolders.check(scan);
        }
        Object columns = columns(part.plan.output());
        List<Object> inputs = new ArrayList<>();
        for (Object input : part.inputs) {
            inputs.add(columns(((SparkPlan) input).output()));
        }
        return Answer.facts("sql", part.sql, "columns", columns, "inputs", inputs,
                "read", scan == null ? new ArrayList<Object>() : NativeScan.columns(scan, false),
                "folders", scan == null ? new ArrayList<Object>() : NativeScan.columns(scan, true),
                "table", scan == null ? "" : NativeScan.table(scan), "calendar", scan == null ? "CORRECTED" : NativeScan.calendar(scan),
                "aggregates", part.aggregates, "builds", part.builds.size(), "keys", part.keys, "joined_rows", part.joinedRows(),
                "task_bytes", part.maxTaskBytes(), "above", above);
    }

    static List<Object> columns(Seq<Attribute> output) throws NativeSql.Declined {
        List<Object> columns = new ArrayList<>();
        Set<Object> names = new HashSet<>();
        for (Attribute column : Catalyst.each(output)) {
            if (!names.add(NativeSql.column(column))) {
                throw new NativeSql.Declined("a column that occurs twice");
            }
            columns.add(Answer.facts("name", NativeSql.column(column), "type", Catalyst.type(column)));
        }
        if (columns.isEmpty()) {
            throw new NativeSql.Declined("a plan without columns");
        }
        return columns;
    }

    /** Returns the inputs of a part, each an RDD of rows with a subpartition and a batch of columns. */
    public List<Object> inputs(SparkPlan plan) throws NativeSql.Declined {
        List<Object> inputs = new ArrayList<>();
        for (Object input : new NativePart(plan).inputs) {
            inputs.add(((ColumnsToRows) input).child().execute());
        }
        return inputs;
    }

    /** Returns an RDD with a row per task: the JSON list of the files that the task reads. */
    public Object tasks(SparkPlan leaf) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.tasks(new NativePart(leaf).scan);
    }

    /** Records in an executed plan that the tasks of a leaf replace its scan, and the rows that they read. */
    public void recordScan(SparkPlan tasks, SparkPlan leaf, long rows) throws NativeSql.Declined {
        ScanMetrics.record(tasks, new NativePart(leaf).scan, rows);
    }

    /** Returns a sample of the tasks of a leaf as JSON; see `NativeScan.sample`. */
    public String sample(SparkPlan leaf, int count) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.sample(new NativePart(leaf).scan, count);
    }

    /**
     * Returns a plan that converts unscaled integers back to decimals.
     *
     * @param output the columns of the returned plan
     */
    public SparkPlan withDecimals(SparkPlan plan, Seq<Attribute> output) {
        return new ProjectExec(values(plan.output(), output), plan);
    }

    /** Returns columns with the names and types of other columns. */
    static Seq<NamedExpression> values(Seq<Attribute> columns, Seq<Attribute> output) {
        List<NamedExpression> values = new ArrayList<>();
        for (int i = 0; i < output.size(); i++) {
            Attribute target = (Attribute) (Object) output.apply(i);
            Attribute source = (Attribute) (Object) columns.apply(i);
            Expression value = source;
            if (!source.dataType().equals(target.dataType())) {
                DecimalType type = (DecimalType) target.dataType();
                value = new MakeDecimal(source, type.precision(), type.scale(), true);
            }
            values.add(Catalyst.alias(value, target.name(), target.exprId()));
        }
        return PythonUtils.toSeq(values);
    }

    /** Writes the rows of a leaf's build side to a file. */
    public void writeBuild(SparkPlan leaf, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) new NativePart(leaf).builds.get(number), path);
    }

    /** Returns a plan with parts replaced. */
    public SparkPlan replaced(SparkPlan plan, List<?> old, List<?> replacements) {
        for (int i = 0; i < old.size(); i++) {
            if (old.get(i) == plan) {
                SparkPlan replacement = (SparkPlan) replacements.get(i);
                replacement.copyTagsFrom(plan);
                return replacement;
            }
        }
        if (plan.children().isEmpty()) {
            return plan;
        }
        List<SparkPlan> children = new ArrayList<>();
        for (SparkPlan child : Catalyst.each(plan.children())) {
            children.add(replaced(child, old, replacements));
        }
        return (SparkPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }
}
