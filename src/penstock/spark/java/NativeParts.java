package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DecimalType;

import scala.Option;
import scala.collection.immutable.Seq;

/** Finds the parts of a physical plan that DuckDB can run; see `native_parts`. */
public final class NativeParts {
    /** Returns the largest parts that can be run, and for each scan that is in none of them why. */
    public Answer find(SparkPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        visit(plan, null, facts, handles);
        return Answer.of(facts, handles);
    }

    private static void visit(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        String why = null;
        try {
            NativePart part = new NativePart(plan);
            if (part.isMoreThanItsInputs()) {
                add(facts(part, above), null, facts, plan, handles);
            } else {
                addDeclined(above == null ? "nothing is computed of it" : above, "", facts, plan, handles);
            }
            return;
        } catch (NativeSql.Declined declined) {
            why = declined.getMessage();
            if (plan instanceof FileSourceScanExec) {
                addDeclined(why, NativeScan.table((FileSourceScanExec) plan), facts, plan, handles);
                return;
            }
        }
        why = NativePart.EXCHANGE.equals(why) ? null : why;
        if (!isScattered(plan, why, facts, handles)) {
            for (Object child : Catalyst.each(plan.children())) {
                visit((SparkPlan) child, why, facts, handles);
            }
        }
    }

    /** Whether what is below an exchange, or an aggregate that needs one, can be run; its rows leave as columns then. */
    private static boolean isScattered(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        try {
            Object scatter = null;
            if (plan instanceof ShuffleExchangeExec) {
                scatter = NativeScatter.of((ShuffleExchangeExec) plan);
            } else if (plan instanceof BaseAggregateExec) {
                scatter = NativeScatter.of((BaseAggregateExec) plan);
            }
            if (scatter == null) {
                return false;
            }
            SparkPlan child = (SparkPlan) Catalyst.each(plan.children()).get(0);
            Map<String, Object> found = facts(new NativePart(child), above);
            found.put("scatter", scatter);
            add(found, plan instanceof ShuffleExchangeExec ? plan : null, facts, child, handles);
            return true;
        } catch (NativeSql.Declined declined) {
            return false;
        }
    }

    private static void addDeclined(String why, String table, List<Object> facts, SparkPlan node, List<Object> handles) {
        Map<String, Object> found = new HashMap<>();
        found.put("declined", why);
        found.put("table", table);
        add(found, null, facts, node, handles);
    }

    private static void add(Map<String, Object> one, SparkPlan exchange, List<Object> facts, SparkPlan node,
            List<Object> handles) {
        facts.add(one);
        handles.add(node);
        handles.add(exchange == null ? node : exchange);
    }

    private static Map<String, Object> facts(NativePart part, String above) throws NativeSql.Declined {
        if (part.scan != null) {
            NativeFolders.check(part.scan);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("sql", part.sql);
        found.put("columns", columns(part.plan.output()));
        List<Object> inputs = new ArrayList<>();
        for (Object input : part.inputs) {
            inputs.add(columns(((SparkPlan) input).output()));
        }
        found.put("inputs", inputs);
        found.put("read", part.scan == null ? new ArrayList<>() : NativeScan.columns(part.scan, false));
        found.put("folders", part.scan == null ? new ArrayList<>() : NativeScan.columns(part.scan, true));
        found.put("table", part.scan == null ? "" : NativeScan.table(part.scan));
        found.put("calendar", part.scan == null ? "CORRECTED" : NativeScan.calendar(part.scan));
        found.put("aggregates", part.aggregates);
        found.put("builds", part.builds.size());
        found.put("keys", part.keys);
        found.put("joined_rows", part.joinedRows());
        found.put("task_bytes", part.largestTask());
        found.put("above", above);
        return found;
    }

    /** Returns the names and types of columns. */
    static List<Object> columns(Seq<Attribute> output) throws NativeSql.Declined {
        List<Object> columns = new ArrayList<>();
        Set<Object> names = new HashSet<>();
        for (Object column : Catalyst.each(output)) {
            Map<String, Object> one = new HashMap<>();
            if (!names.add(NativeSql.column((AttributeReference) column))) {
                throw new NativeSql.Declined("a column that stands twice");
            }
            one.put("name", NativeSql.column((AttributeReference) column));
            one.put("type", Catalyst.type((Expression) column));
            columns.add(one);
        }
        if (columns.isEmpty()) {
            throw new NativeSql.Declined("no columns");
        }
        return columns;
    }

    /** Returns the exchanged columns that a part reads, each as rows of a place and a batch. */
    public List<Object> inputs(SparkPlan plan) throws NativeSql.Declined {
        List<Object> found = new ArrayList<>();
        for (Object input : new NativePart(plan).inputs) {
            found.add(((NativeRows) input).child().execute());
        }
        return found;
    }

    /** Returns rows with one text each, of which every task gets the one that says which files it reads. */
    public Object tasks(SparkPlan leaf) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.tasks(new NativePart(leaf).scan);
    }

    /** Lets the tasks of a leaf, in a plan that has run, stand for its scan, that has read some rows. */
    public void tell(SparkPlan tasks, SparkPlan leaf, long rows) throws NativeSql.Declined {
        NativeScan.stand(tasks, new NativePart(leaf).scan, rows);
    }

    /** Returns as JSON what is known of the tasks and files of a leaf; see `NativeScan.sample`. */
    public String sample(SparkPlan leaf, int wanted) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.sample(new NativePart(leaf).scan, wanted);
    }

    /**
     * Returns a plan whose rows are those of one that has short decimals as whole numbers.
     *
     * @param output the columns that are wanted
     */
    public SparkPlan withDecimals(SparkPlan plan, Seq<Attribute> output) {
        return new ProjectExec(values(plan.output(), output), plan);
    }

    /** Returns some columns with the names and types of others. */
    static Seq<NamedExpression> values(Seq<Attribute> columns, Seq<Attribute> output) {
        List<NamedExpression> found = new ArrayList<>();
        for (int i = 0; i < output.size(); i++) {
            Attribute wanted = (Attribute) (Object) output.apply(i);
            Attribute given = (Attribute) (Object) columns.apply(i);
            Expression value = given;
            if (!given.dataType().equals(wanted.dataType())) {
                DecimalType type = (DecimalType) wanted.dataType();
                value = new MakeDecimal(given, type.precision(), type.scale(), true);
            }
            found.add(new Alias(value, wanted.name(), wanted.exprId(), Catalyst.<String>none(), Option.empty(),
                    Catalyst.<String>none()));
        }
        return PythonUtils.toSeq(found);
    }

    /** Writes the rows of a broadcast side of a leaf to a file. */
    public void writeBuild(SparkPlan leaf, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) new NativePart(leaf).builds.get(number), path);
    }

    /** Returns a plan with some of its parts replaced. */
    public SparkPlan replaced(SparkPlan plan, List<?> old, List<?> made) {
        for (int i = 0; i < old.size(); i++) {
            if (old.get(i) == plan) {
                SparkPlan other = (SparkPlan) made.get(i);
                other.copyTagsFrom(plan);
                return other;
            }
        }
        if (plan.children().isEmpty()) {
            return plan;
        }
        List<SparkPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(replaced((SparkPlan) child, old, made));
        }
        Object copy = plan.withNewChildren(PythonUtils.toSeq(children));
        return (SparkPlan) copy;
    }
}
