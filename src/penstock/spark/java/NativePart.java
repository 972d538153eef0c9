package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.aggregate.SortAggregateExec;
import org.apache.spark.sql.execution.exchange.EnsureRequirements;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;

import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/** A part of a plan as one query of DuckDB's: over the files of a scan, or over exchanged columns; see `NativeParts`. */
final class NativePart {
    /** Why an exchange is no part. */
    static final String EXCHANGE = "an exchange";

    final SparkPlan plan;
    final String sql;
    /** What is read, null if the part is over exchanged columns. */
    FileSourceScanExec scan;
    /** The exchanged columns, which the query calls ``input_0`` and so on. */
    final List<Object> inputs = new ArrayList<>();
    /** The sides that were broadcast to its joins, which the query calls ``build_0`` and so on. */
    final List<Object> builds = new ArrayList<>();
    /** The numbers of the keys that its rows must be among; see `NativeKeys`. */
    final List<Object> keys = new ArrayList<>();
    /** Whether rows are summed up. */
    boolean aggregates;
    /** The broadcasts that are joined above what is looked at. */
    private final List<Object> joined = new ArrayList<>();
    private final String name;
    private boolean needsLayout;
    private long keyRows;
    /** How many operators above what is looked at may drop rows of it, in DuckDB before their values are computed. */
    private int droppers;

    NativePart(SparkPlan plan) throws NativeSql.Declined {
        this(plan, "scan");
    }

    /** A part whose query calls the rows of its files by a name. */
    NativePart(SparkPlan plan, String name) throws NativeSql.Declined {
        this.plan = plan;
        this.name = name;
        sql = of(plan);
        if (scan != null && !inputs.isEmpty()) {
            throw new NativeSql.Declined("files beside exchanged rows");
        }
        if (needsLayout) {
            checkLayout();
        }
    }

    /** Whether anything is done to the exchanged columns. */
    boolean isMoreThanItsInputs() {
        SparkPlan ready = ready(plan);
        return inputs.isEmpty() || !(within(ready == null ? plan : ready) instanceof NativeRows);
    }

    /** Returns how many bytes of exchanged columns its largest task reads at most, as they were written. */
    long largestTask() {
        long found = 0;
        for (Object input : inputs) {
            found += ((NativeRows) input).largestPartition();
        }
        return found;
    }

    /** Returns how many rows its builds and keys have. */
    long joinedRows() {
        long found = keyRows;
        for (Object build : builds) {
            Option<?> rows = ((BroadcastQueryStageExec) build).getRuntimeStatistics().rowCount();
            found += rows.isEmpty() ? 0 : ((BigInt) (Object) rows.get()).longValue();
        }
        return found;
    }

    private String of(SparkPlan plan) throws NativeSql.Declined {
        SparkPlan ready = ready(plan);
        if (ready != null) {
            return named(of(ready), ready, plan);
        }
        SparkPlan one = within(plan);
        if (one instanceof FileSourceScanExec) {
            if (scan != null) {
                throw new NativeSql.Declined("two tables");
            }
            scan = (FileSourceScanExec) one;
            return NativeScan.sql(scan, name);
        }
        if (one instanceof NativeRows) {
            inputs.add(one);
            return "SELECT * FROM input_" + (inputs.size() - 1);
        }
        if (one instanceof ProjectExec) {
            if (droppers > 0 && !ExpressionSafety.cannotFail(((ProjectExec) one).projectList())) {
                throw new NativeSql.Declined("a value that may fail, of a row that may be dropped");
            }
            return "SELECT " + named(((ProjectExec) one).projectList()) + " FROM (" + of(((ProjectExec) one).child()) + ")";
        }
        if (one instanceof FilterExec) {
            return filtered(((FilterExec) one).condition(), ofDropped(((FilterExec) one).child()));
        }
        if (one instanceof BroadcastHashJoinExec) {
            return joinedWithBuild(new NativeJoin((BroadcastHashJoinExec) one));
        }
        if (one instanceof SortMergeJoinExec || one instanceof ShuffledHashJoinExec) {
            needsLayout = true;
            NativeJoin join = new NativeJoin(one);
            List<Object> before = new ArrayList<>(joined);
            String left = ofDropped(unsorted(join.left));
            joined.retainAll(before); // those of one side are of no use to the other
            return join.of(left, ofDropped(unsorted(join.right)));
        }
        if (one instanceof HashAggregateExec || one instanceof SortAggregateExec) {
            BaseAggregateExec aggregate = (BaseAggregateExec) one;
            String below = of(unsorted((SparkPlan) Catalyst.each(one.children()).get(0)));
            aggregates = true;
            if (aggregate.requiredChildDistributionExpressions().isEmpty()) {
                return new NativeAggregate(aggregate).of(below);
            }
            needsLayout = true;
            return NativeTotals.of(aggregate, below);
        }
        throw new NativeSql.Declined(one instanceof Exchange ? EXCHANGE : "operator " + Catalyst.name(one));
    }

    private String ofDropped(SparkPlan plan) throws NativeSql.Declined {
        droppers++;
        String rows = of(plan);
        droppers--;
        return rows;
    }

    /** Returns what a plan is that only says how another one is run. */
    private static SparkPlan within(SparkPlan plan) {
        boolean isWrapped = plan instanceof WholeStageCodegenExec || plan instanceof InputAdapter;
        return isWrapped ? within((SparkPlan) Catalyst.each(plan.children()).get(0)) : plan;
    }

    /** Returns the plan of rows that lie ready, null if a plan is something else. */
    private static SparkPlan ready(SparkPlan plan) {
        SparkPlan one = within(plan);
        return one instanceof RDDScanExec ? NativeRows.planOf(one) : null;
    }

    /** Returns a query with the columns of another plan: a result that is read twice has other ones at one of its places. */
    private static String named(String sql, SparkPlan from, SparkPlan to) throws NativeSql.Declined {
        List<?> columns = Catalyst.each(to.output());
        if (columns.size() != from.output().size()) {
            throw new NativeSql.Declined("a result that is read by other columns");
        }
        StringBuilder names = new StringBuilder();
        for (Object column : columns) {
            names.append(names.length() == 0 ? "" : ", ").append(NativeSql.column((AttributeReference) column));
        }
        return "SELECT * FROM (" + sql + ") AS t(" + names + ")";
    }

    /** Returns a plan less the sort that is only there for the operator above. */
    private static SparkPlan unsorted(SparkPlan plan) {
        SparkPlan one = within(plan);
        return one instanceof SortExec ? ((SortExec) one).child() : one;
    }

    private String joinedWithBuild(NativeJoin join) throws NativeSql.Declined {
        joined.add(join.broadcast());
        String build = "SELECT * FROM build_" + builds.size();
        builds.add(join.build);
        return join.buildsLeft ? join.of(build, ofDropped(join.right)) : join.of(ofDropped(join.left), build);
    }

    static String named(Seq<NamedExpression> expressions) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(expressions)) {
            NamedExpression one = (NamedExpression) each;
            found.append(found.length() == 0 ? "" : ", ").append(NativeSql.of((Expression) each)).append(" AS c")
                    .append(one.exprId().id());
        }
        return found.length() == 0 ? "1 AS nothing" : found.toString();
    }

    /** Returns the rows that meet a condition. A filter by keys that are joined anyway is of no more use. */
    private String filtered(Expression condition, String below) throws NativeSql.Declined {
        if (condition instanceof And) {
            return filtered(((And) condition).right(), filtered(((And) condition).left(), below));
        }
        Object number = NativeKeys.number(condition);
        if (number == null) {
            return "SELECT * FROM (" + below + ") WHERE " + NativeSql.condition(condition);
        }
        if (joined.contains(NativeKeys.broadcast(condition))) {
            return below;
        }
        keys.add(number);
        keyRows += NativeKeys.rows(condition);
        return "SELECT s.* FROM (" + below + ") AS s SEMI JOIN keys_" + number + " AS k ON " + NativeKeys.met(condition);
    }

    /** Checks that the rows of joins and aggregates lie together: Spark's own rule would exchange them otherwise. */
    private void checkLayout() throws NativeSql.Declined {
        boolean moves;
        try {
            moves = exchanges(new EnsureRequirements(true, Option.empty()).apply(plan));
        } catch (Exception refused) { // see `CutLayouts`, which throws what is not declared
            moves = true;
        }
        if (moves) {
            throw new NativeSql.Declined("rows that must be exchanged first");
        }
    }

    private static boolean exchanges(SparkPlan plan) {
        if (plan instanceof Exchange) {
            return true;
        }
        for (Object child : plan instanceof NativeRows ? new ArrayList<Object>() : Catalyst.each(plan.children())) {
            if (exchanges((SparkPlan) child)) {
                return true;
            }
        }
        return false;
    }
}
