package penstock.delegation;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.SparkContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;

import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;
import penstock.plans.PenstockOperator;

/** A line of an explanation and its nested lines, shown as nodes of a Spark plan. It cannot be executed. */
public final class ExplainedLine extends PenstockOperator {
    private static final long serialVersionUID = 1L;

    private final transient String text;
    private final transient Seq<SparkPlan> nested;

    public ExplainedLine(String text, Seq<SparkPlan> nested) {
        super(new Object[] {text, nested});
        this.text = text;
        this.nested = nested;
    }

    /** Returns a node for each line with the least indentation; the lines nested in it are nodes below. */
    static List<Object> of(String text) {
        return of(text.isEmpty() ? new ArrayList<Object>() : Arrays.asList((Object[]) text.split("\n")));
    }

    @SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer element types
    static List<Object> of(List<?> lines) {
        List<Object> nodes = new ArrayList<>();
        int next = 0;
        while (next < lines.size()) {
            int from = next + 1;
            int indentation = indentation(lines.get(next));
            int to = from;
            while (to < lines.size() && indentation(lines.get(to)) > indentation) {
                to++;
            }
            Seq nested = PythonUtils.toSeq(of(lines.subList(from, to)));
            Object line = lines.get(next);
            nodes.add(new ExplainedLine(((String) line).trim(), nested));
            next = to;
        }
        return nodes;
    }

    static int indentation(Object line) {
        String text = (String) line;
        return text.length() - text.stripLeading().length();
    }

    /**
     * Whether a user has requested to see the plan. Spark also formats the plan of every execution and of all cached data,
     * which must remain fast.
     */
    static boolean isRequested(SparkContext context) {
        String execution = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
        if (execution != null) {
            QueryExecution queryExecution = SQLExecution.getQueryExecution(Long.parseLong(execution));
            return queryExecution != null && "ExplainCommand".equals(Catalyst.name(queryExecution.logical()));
        }
        boolean isExplain = false;
        for (StackTraceElement frame : Thread.currentThread().getStackTrace()) {
            if (frame.getClassName().startsWith("org.apache.spark.sql.execution.ExplainUtils")) {
                return false; // EXPLAIN FORMATTED numbers and describes every node, which makes no sense for lines
            }
            isExplain = isExplain || frame.getMethodName().equals("explainString");
        }
        return isExplain;
    }

    @Override
    public RDD<InternalRow> doExecute() {
        throw new UnsupportedOperationException("a line of an explanation cannot be executed");
    }

    @Override
    public Seq<Attribute> output() {
        return Catalyst.emptySeq();
    }

    @Override
    public Seq<SparkPlan> children() {
        return nested;
    }

    @Override
    public String nodeName() {
        return text;
    }

    @Override
    public String simpleString(int fields) {
        return text;
    }
}
