package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.aggregate.SortAggregateExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;

import scala.collection.immutable.Seq;

/** Finds the parts of a physical plan that DuckDB can run: a scan, and what is right above it; see `native_leaves`. */
public final class NativeLeaves {
    private static final String ROWS_STAY_MANY = "no aggregate makes its rows few";

    /** A part of a plan as SQL, over the columns of one scan. */
    private static final class Part {
        final String sql;
        final FileSourceScanExec scan;
        final boolean aggregates;
        /** The sides that were broadcast to its joins, the lowest first. */
        final List<Object> builds;

        Part(String sql, FileSourceScanExec scan, boolean aggregates, List<Object> builds) {
            this.sql = sql;
            this.scan = scan;
            this.aggregates = aggregates;
            this.builds = builds;
        }

        /** Returns a query over this one. */
        Part above(String query) {
            return new Part(query, scan, aggregates, builds);
        }
    }

    /** Returns the largest parts that can be run, and for each scan that is in none of them why. */
    public Answer find(SparkPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        visit(plan, null, facts, handles);
        return Answer.of(facts, handles);
    }

    private static void visit(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        Map<String, Object> found = new HashMap<>();
        String why = null;
        try {
            Part part = part(plan);
            List<Object> columns = new ArrayList<>();
            for (Object column : Catalyst.each(plan.output())) {
                Map<String, Object> one = new HashMap<>();
                one.put("name", NativeSql.column((AttributeReference) column));
                one.put("type", Catalyst.type((Expression) column));
                columns.add(one);
            }
            if (columns.isEmpty()) {
                throw new NativeSql.Declined("no columns");
            }
            found.put("sql", part.sql);
            found.put("columns", columns);
            found.put("read", NativeScan.columns(part.scan));
            found.put("table", NativeScan.table(part.scan));
            found.put("aggregates", part.aggregates);
            found.put("builds", part.builds.size());
            found.put("calendar", NativeScan.calendar(part.scan));
            found.put("above", above);
            facts.add(found);
            handles.add(plan);
            return;
        } catch (NativeSql.Declined declined) {
            why = declined.getMessage();
            if (plan instanceof FileSourceScanExec) {
                found.put("declined", declined.getMessage());
                found.put("table", NativeScan.table((FileSourceScanExec) plan));
                facts.add(found);
                handles.add(plan);
                return;
            }
        }
        for (Object child : Catalyst.each(plan.children())) {
            visit((SparkPlan) child, why, facts, handles);
        }
    }

    private static Part part(SparkPlan plan) throws NativeSql.Declined {
        if (plan instanceof FileSourceScanExec) {
            FileSourceScanExec scan = (FileSourceScanExec) plan;
            return new Part(NativeScan.sql(scan), scan, false, new ArrayList<>());
        }
        if (plan instanceof ProjectExec) {
            Part below = part(((ProjectExec) plan).child());
            return below.above("SELECT " + named(((ProjectExec) plan).projectList()) + " FROM (" + below.sql + ")");
        }
        if (plan instanceof FilterExec) {
            Part below = part(((FilterExec) plan).child());
            return below.above("SELECT * FROM (" + below.sql + ") WHERE " + NativeSql.condition(((FilterExec) plan).condition()));
        }
        if (plan instanceof BroadcastHashJoinExec) {
            NativeJoin join = new NativeJoin((BroadcastHashJoinExec) plan);
            Part below = part(join.streamed);
            String joined = join.of(below.sql, below.builds.size());
            below.builds.add(join.build);
            return below.above(joined);
        }
        if (plan instanceof HashAggregateExec || plan instanceof SortAggregateExec) {
            return aggregated((BaseAggregateExec) plan, part((SparkPlan) Catalyst.each(plan.children()).get(0)));
        }
        throw new NativeSql.Declined(plan instanceof Exchange ? ROWS_STAY_MANY : "operator " + Catalyst.name(plan));
    }

    private static String named(Seq<NamedExpression> expressions) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(expressions)) {
            NamedExpression one = (NamedExpression) each;
            found.append(found.length() == 0 ? "" : ", ").append(NativeSql.of((Expression) each)).append(" AS c")
                    .append(one.exprId().id());
        }
        return found.length() == 0 ? "1 AS nothing" : found.toString();
    }

    /** Returns what a task sums up of its rows before they are exchanged. */
    private static Part aggregated(BaseAggregateExec plan, Part below) throws NativeSql.Declined {
        NativeAggregate aggregate = new NativeAggregate(plan);
        return new Part("SELECT " + aggregate.columns + " FROM (" + below.sql + ")" + aggregate.groups, below.scan, true,
                below.builds);
    }

    /** Returns rows with one text each, of which every task gets the one that says which files it reads. */
    public Object tasks(SparkPlan leaf) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.tasks(part(leaf).scan);
    }

    /** Writes the rows of a broadcast side of a leaf to a file. */
    public void writeBuild(SparkPlan leaf, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) part(leaf).builds.get(number), path);
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
