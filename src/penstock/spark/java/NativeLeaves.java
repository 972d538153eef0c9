package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
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
import org.apache.spark.sql.types.DecimalType;

import scala.Option;
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
        /** The numbers of the keys that its rows must be among; see `NativeKeys`. */
        final List<Object> keys;

        Part(String sql, FileSourceScanExec scan) {
            this(sql, scan, false, new ArrayList<>(), new ArrayList<>());
        }

        private Part(String sql, FileSourceScanExec scan, boolean aggregates, List<Object> builds, List<Object> keys) {
            this.sql = sql;
            this.scan = scan;
            this.aggregates = aggregates;
            this.builds = builds;
            this.keys = keys;
        }

        /** Returns a query over this one. */
        Part above(String query) {
            return new Part(query, scan, aggregates, builds, keys);
        }

        /** Returns an aggregate over this one. */
        Part summedUp(String query) {
            return new Part(query, scan, true, builds, keys);
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
            Part part = part(plan, new ArrayList<>());
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
            found.put("keys", part.keys);
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

    /** Returns a plan as a part; `joined` are the broadcasts that are joined above it. */
    private static Part part(SparkPlan plan, List<Object> joined) throws NativeSql.Declined {
        if (plan instanceof FileSourceScanExec) {
            return new Part(NativeScan.sql((FileSourceScanExec) plan), (FileSourceScanExec) plan);
        }
        if (plan instanceof ProjectExec) {
            Part below = part(((ProjectExec) plan).child(), joined);
            return below.above("SELECT " + named(((ProjectExec) plan).projectList()) + " FROM (" + below.sql + ")");
        }
        if (plan instanceof FilterExec) {
            return filtered(((FilterExec) plan).condition(), part(((FilterExec) plan).child(), joined), joined);
        }
        if (plan instanceof BroadcastHashJoinExec) {
            NativeJoin join = new NativeJoin((BroadcastHashJoinExec) plan);
            joined.add(join.broadcast());
            Part below = part(join.streamed, joined);
            String query = join.of(below.sql, below.builds.size());
            below.builds.add(join.build);
            return below.above(query);
        }
        if (plan instanceof HashAggregateExec || plan instanceof SortAggregateExec) {
            NativeAggregate aggregate = new NativeAggregate((BaseAggregateExec) plan);
            Part below = part((SparkPlan) Catalyst.each(plan.children()).get(0), joined);
            return below.summedUp("SELECT " + aggregate.columns + " FROM (" + below.sql + ")" + aggregate.groups);
        }
        throw new NativeSql.Declined(plan instanceof Exchange ? ROWS_STAY_MANY : "operator " + Catalyst.name(plan));
    }

    /** Returns the rows of a part that meet a condition. A filter by keys that are joined anyway is of no more use. */
    private static Part filtered(Expression condition, Part below, List<Object> joined) throws NativeSql.Declined {
        if (condition instanceof And) {
            return filtered(((And) condition).right(), filtered(((And) condition).left(), below, joined), joined);
        }
        Object keys = NativeKeys.number(condition);
        if (keys == null) {
            return below.above("SELECT * FROM (" + below.sql + ") WHERE " + NativeSql.condition(condition));
        }
        if (joined.contains(NativeKeys.broadcast(condition))) {
            return below;
        }
        below.keys.add(keys);
        return below.above("SELECT s.* FROM (" + below.sql + ") AS s SEMI JOIN keys_" + keys + " AS k ON "
                + NativeKeys.met(condition));
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

    /** Returns rows with one text each, of which every task gets the one that says which files it reads. */
    public Object tasks(SparkPlan leaf) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.tasks(part(leaf, new ArrayList<>()).scan);
    }

    /** Lets the tasks of a leaf, in a plan that has run, stand for its scan, that has read some rows. */
    public void tell(SparkPlan tasks, SparkPlan leaf, long rows) throws NativeSql.Declined {
        NativeScan.stand(tasks, part(leaf, new ArrayList<>()).scan, rows);
    }

    /** Returns as JSON some of the files that a leaf reads; see `NativeScan.sample`. */
    public String sample(SparkPlan leaf, int wanted) throws JsonProcessingException, NativeSql.Declined {
        return NativeScan.sample(part(leaf, new ArrayList<>()).scan, wanted);
    }

    /**
     * Returns a plan whose rows are those of one that has short decimals as whole numbers.
     *
     * @param output the columns that are wanted
     */
    public SparkPlan withDecimals(SparkPlan plan, Seq<Attribute> output) {
        List<NamedExpression> found = new ArrayList<>();
        for (int i = 0; i < output.size(); i++) {
            Attribute wanted = (Attribute) (Object) output.apply(i);
            Attribute given = (Attribute) (Object) plan.output().apply(i);
            Expression value = given;
            if (!given.dataType().equals(wanted.dataType())) {
                DecimalType type = (DecimalType) wanted.dataType();
                value = new MakeDecimal(given, type.precision(), type.scale(), true);
            }
            found.add(new Alias(value, wanted.name(), wanted.exprId(), Catalyst.<String>none(), Option.empty(),
                    Catalyst.<String>none()));
        }
        return new ProjectExec(PythonUtils.toSeq(found), plan);
    }

    /** Writes the rows of a broadcast side of a leaf to a file. */
    public void writeBuild(SparkPlan leaf, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) part(leaf, new ArrayList<>()).builds.get(number), path);
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
