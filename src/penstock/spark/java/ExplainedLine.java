package penstock;

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

import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A line of an explanation, and those that belong to it, drawn as Spark draws plans. Nothing runs it. */
public final class ExplainedLine extends SparkPlan {
    private static final long serialVersionUID = 1L;

    private final transient String text;
    private final transient Seq<SparkPlan> below;

    public ExplainedLine(String text, Seq<SparkPlan> below) {
        this.text = text;
        this.below = below;
    }

    /** Returns a node for each line of a text that is indented least; the lines below it that are indented more are its own. */
    static List<Object> of(String text) {
        List<?> lines = Arrays.asList((Object[]) text.split("\n"));
        return of(text.isEmpty() ? new ArrayList<Object>() : lines);
    }

    @SuppressWarnings({"rawtypes", "unchecked"}) // Janino knows no types of the list's elements
    static List<Object> of(List<?> lines) {
        List<Object> found = new ArrayList<>();
        int next = 0;
        while (next < lines.size()) {
            int from = next + 1;
            int depth = depth(lines.get(next));
            int to = from;
            while (to < lines.size() && depth(lines.get(to)) > depth) {
                to++;
            }
            Seq below = PythonUtils.toSeq(of(lines.subList(from, to)));
            Object line = lines.get(next);
            found.add(new ExplainedLine(((String) line).trim(), below));
            next = to;
        }
        return found;
    }

    static int depth(Object line) {
        String text = (String) line;
        return text.length() - text.stripLeading().length();
    }

    /**
     * Whether a user wants to see a plan. Spark draws the plan of every execution, too, and of whatever is cached: that
     * must not take longer.
     */
    static boolean isWanted(SparkContext context) {
        String execution = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
        if (execution != null) {
            QueryExecution found = SQLExecution.getQueryExecution(Long.parseLong(execution));
            return found != null && "ExplainCommand".equals(Catalyst.name(found.logical()));
        }
        boolean found = false;
        for (StackTraceElement each : Thread.currentThread().getStackTrace()) {
            if (each.getClassName().startsWith("org.apache.spark.sql.execution.ExplainUtils")) {
                return false; // it numbers all nodes, and describes each
            }
            found = found || each.getMethodName().equals("explainString");
        }
        return found;
    }

    @Override
    public RDD<InternalRow> doExecute() {
        throw new UnsupportedOperationException("this is no operator");
    }

    @Override
    public Seq<Attribute> output() {
        return Catalyst.none();
    }

    @Override
    public Seq<SparkPlan> children() {
        return below;
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return this;
    }

    @Override
    public String nodeName() {
        return text;
    }

    @Override
    public String simpleString(int fields) {
        return text;
    }

    @Override
    public String verboseString(int fields) {
        return text;
    }

    @Override
    public Iterator<Object> stringArgs() {
        return Catalyst.<Object>none().iterator();
    }

    @Override
    public int productArity() {
        return 2;
    }

    @Override
    public Object productElement(int place) {
        return place == 0 ? text : below;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof ExplainedLine;
    }

    @Override
    public boolean equals(Object other) {
        return other == this;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }
}
