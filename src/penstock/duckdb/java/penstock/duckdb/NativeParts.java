package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.PythonFunctions;
import penstock.exchange.ColumnsToRows;
import penstock.exchange.ScanMetrics;
import penstock.plans.Catalyst;

/** Finds the parts of a physical plan that DuckDB can run; see `duckdb/parts.py`. */
public final class NativeParts {
    /**
     * Returns the maximal parts that DuckDB can run, and why Spark reads other scans and exchanged columns.
     *
     * @param excluded names of expressions that Spark must compute, in lower case
     * @param onlyExpensive whether to skip plans that neither call Python functions nor parse JSON
     */
    public Answer find(SparkPlan plan, List<?> excluded, boolean onlyExpensive) throws JsonProcessingException {
        NativeTemplates.exclude(excluded);
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        if (!onlyExpensive || PythonFunctions.areBelow(plan) || NativeJson.isParsedBelow(plan)) {
            visit(plan, null, facts, handles);
        }
        return Answer.of(facts, handles);
    }

    /** Adds the parts of a plan; `aboveReason` says why the operator above is declined, null for an exchange. */
    private static void visit(SparkPlan plan, String aboveReason, List<Object> facts, List<Object> handles) {
        String reason;
        try {
            NativePart part = new NativePart(plan);
            if (part.computesAnything()) {
                add(facts(part, aboveReason), null, facts, plan, handles);
            } else {
                addDeclined(aboveReason == null ? "nothing is computed from it" : aboveReason, "", facts, plan, handles);
            }
            return;
        } catch (Declined declined) {
            reason = declined.getMessage();
            if (plan instanceof FileSourceScanExec) {
                addDeclined(reason, NativeScan.table((FileSourceScanExec) plan), facts, plan, handles);
                return;
            }
        }
        reason = NativePart.EXCHANGE_REASON.equals(reason) ? null : reason;
        if (!addScattered(plan, reason, facts, handles)) {
            for (SparkPlan child : Catalyst.each(plan.children())) {
                visit(child, reason, facts, handles);
            }
        }
    }

    /** Adds the input of a present or later exchange as a part; returns false if DuckDB cannot compute or hash it. */
    private static boolean addScattered(SparkPlan plan, String aboveReason, List<Object> facts, List<Object> handles) {
        try {
            Object scatter = NativeScatter.of(plan);
            if (scatter == null) {
                return false;
            }
            SparkPlan child = Catalyst.onlyChild(plan);
            Map<String, Object> partFacts = facts(new NativePart(child), aboveReason);
            partFacts.put("scatter", scatter);
            add(partFacts, plan instanceof ShuffleExchangeExec ? plan : null, facts, child, handles);
            return true;
        } catch (Declined declined) {
            return false;
        }
    }

    private static void addDeclined(String reason, String table, List<Object> facts, SparkPlan node, List<Object> handles) {
        add(Answer.facts("declined_reason", reason, "table", table), null, facts, node, handles);
    }

    /** Adds facts and two handles: `node`, the root of the part, and the operator to replace: an exchange or `node`. */
    private static void add(Map<String, Object> partFacts, SparkPlan exchange, List<Object> facts, SparkPlan node,
            List<Object> handles) {
        facts.add(partFacts);
        handles.add(node);
        handles.add(exchange == null ? node : exchange);
    }

    private static Map<String, Object> facts(NativePart part, String aboveReason) throws Declined {
        FileSourceScanExec scan = part.scan;
        if (scan != null) {
            NativeFolders.check(scan);
        }
        Object columns = columns(part.plan.output(), part.plan instanceof ProjectExec);
        List<Object> inputs = new ArrayList<>();
        for (Object input : part.inputs) {
            inputs.add(columns(((SparkPlan) input).output()));
        }
        return Answer.facts("sql", part.sql, "columns", columns, "inputs", inputs,
                "read_columns", scan == null ? new ArrayList<Object>() : NativeScan.columns(scan, false),
                "partition_columns", scan == null ? new ArrayList<Object>() : NativeScan.columns(scan, true),
                "compared_columns", scan == null ? Answer.facts() : NativeScan.comparedColumns(scan),
                "table", scan == null ? "" : NativeScan.table(scan), "rebase_mode", scan == null ? "CORRECTED" : NativeScan.rebaseMode(scan),
                "aggregates", part.aggregates, "build_count", part.builds.size(), "key_set_numbers", part.keySetNumbers,
                "joined_rows", part.joinedRows(), "max_task_bytes", part.maxTaskBytes(), "above_reason", aboveReason,
                "functions", part.functions, "parses_json", NativeJson.isParsedBelow(part.plan));
    }

    static List<Object> columns(Seq<Attribute> output) throws Declined {
        return columns(output, false);
    }

    /** Returns the names and types of columns; with `isSelected`, the names are those of `NativeSql.selectList`. */
    private static List<Object> columns(Seq<Attribute> output, boolean isSelected) throws Declined {
        List<Object> columns = new ArrayList<>();
        List<String> names = new ArrayList<>();
        for (Attribute column : Catalyst.each(output)) {
            String name = NativeSql.column(column);
            if (names.contains(name) && !isSelected) {
                throw new Declined("a column that occurs twice");
            }
            names.add(distinctName(name, names));
            columns.add(Answer.facts("name", names.get(names.size() - 1), "type", Catalyst.type(column)));
        }
        if (columns.isEmpty()) {
            throw new Declined("a plan without columns");
        }
        return columns;
    }

    /** Returns a name, with its position if it is one of `names`. */
    static String distinctName(String name, List<String> names) {
        return names.contains(name) ? name + "_" + names.size() : name;
    }

    /** Returns the inputs of a part, each an RDD of rows with a routing number and a batch of columns. */
    public List<Object> inputs(SparkPlan root) throws Declined {
        List<Object> inputs = new ArrayList<>();
        for (Object input : new NativePart(root).inputs) {
            inputs.add(((ColumnsToRows) input).child().execute());
        }
        return inputs;
    }

    /** Returns the function of an operator with the broadcast variables of the Python functions of a part. */
    public Object withVariables(PythonUDF function, SparkPlan root) throws Declined {
        return PythonFunctions.withVariables(function, new NativePart(root).functionOperators);
    }

    /** Returns an RDD with a row per task: the JSON list of the file ranges that the task reads. */
    public Object tasks(SparkPlan root) throws JsonProcessingException, Declined {
        return NativeScan.tasks(new NativePart(root).scan);
    }

    /** Records that a leaf of an executed plan replaces the scan of a part, and how many rows its tasks have read. */
    public void recordScan(SparkPlan leaf, SparkPlan root, long rows) throws Declined {
        ScanMetrics.record(leaf, new NativePart(root).scan, rows);
    }

    /** Returns a sample of the tasks of a part as JSON; see `NativeScan.sample`. */
    public String sample(SparkPlan root, int count) throws JsonProcessingException, Declined {
        return NativeScan.sample(new NativePart(root).scan, count);
    }

    /** Returns a plan with the columns `output`, which converts unscaled integers back to decimals. */
    public SparkPlan withDecimals(SparkPlan plan, Seq<Attribute> output) {
        return new ProjectExec(conversions(plan.output(), output), plan);
    }

    /** Returns expressions that convert columns to the names and types of other columns. */
    static Seq<NamedExpression> conversions(Seq<Attribute> columns, Seq<Attribute> output) {
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

    /** Writes the rows of a part's build side to a file. */
    public void writeBuild(SparkPlan root, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) new NativePart(root).builds.get(number), path);
    }

    /** Returns a plan with some operators replaced. */
    public SparkPlan withParts(SparkPlan plan, List<?> replaced, List<?> replacements) {
        for (int i = 0; i < replaced.size(); i++) {
            if (replaced.get(i) == plan) {
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
            children.add(withParts(child, replaced, replacements));
        }
        return (SparkPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }
}
