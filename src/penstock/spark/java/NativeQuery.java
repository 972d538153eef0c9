package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlanner;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.collection.immutable.Seq;

/** An optimised plan, or a part of one, as one query of DuckDB's over all files of its tables; see `NativeQueries`. */
final class NativeQuery {
    final LogicalPlan plan;
    final String sql;
    /** The scans of its tables, whose rows the query calls ``scan_0`` and so on. */
    final List<Object> scans = new ArrayList<>();
    /** Whether Spark would exchange rows for it. */
    boolean exchanges;
    final NativeResults results;
    /** How many operators above what is spelled may drop rows of it, perhaps before their values are computed. */
    private int droppers;
    private final SparkPlanner planner;

    NativeQuery(LogicalPlan plan, SparkPlanner planner) throws NativeSql.Declined {
        this.plan = plan;
        this.planner = planner;
        results = new NativeResults(this, plan);
        sql = results.spelled(plan);
    }

    /** Whether a plan sums rows up, or takes the first ones: its result is far smaller than what it reads. */
    static boolean reduces(LogicalPlan plan) {
        if (plan instanceof Join || plan instanceof Project || plan instanceof Window || plan instanceof Filter) {
            boolean found = false;
            for (Object child : Catalyst.each(plan.children())) {
                found = found || reduces((LogicalPlan) child);
            }
            return found;
        }
        boolean found = plan instanceof Union;
        for (Object child : Catalyst.each(plan.children())) {
            found = found && reduces((LogicalPlan) child);
        }
        return found || plan instanceof Aggregate || plan instanceof GlobalLimit;
    }

    private static boolean isAtMostOne(LogicalPlan plan) {
        return plan.maxRows().isDefined() && ((Long) plan.maxRows().get()).longValue() <= 1;
    }

    /** Returns inner joins side by side, with what is asked of their rows: DuckDB finds the order. */
    private String inner(Join join) throws NativeSql.Declined {
        List<Object> sides = new ArrayList<>();
        List<Object> conditions = new ArrayList<>();
        addSides(join, sides, conditions);
        StringBuilder from = new StringBuilder();
        for (Object side : sides) {
            from.append(from.length() == 0 ? "" : ", ").append("(").append(side).append(") AS side_").append(from.length());
        }
        StringBuilder met = new StringBuilder();
        for (Object condition : conditions) {
            met.append(met.length() == 0 ? " WHERE " : " AND ").append(condition);
        }
        return "SELECT " + columns(join) + " FROM " + from + met;
    }

    private void addSides(LogicalPlan plan, List<Object> sides, List<Object> conditions) throws NativeSql.Declined {
        if (plan instanceof Join && NativePairs.isInner((Join) plan)) {
            Join join = (Join) plan;
            NativePairs.checkNames(join);
            conditions.addAll(NativePairs.ofInner(join, isAtMostOne(join.left()) || isAtMostOne(join.right())));
            addSides(join.left(), sides, conditions);
            addSides(join.right(), sides, conditions);
        } else if (!isScan(plan) && plan instanceof Project && NativeSemiJoins.isChoice((Project) plan)) {
            addSides(((Project) plan).child(), sides, conditions);
        } else if (!isScan(plan) && !sumsUp(plan) && plan instanceof Filter) {
            conditions.add(NativeSql.condition(((Filter) plan).condition()));
            addSides(((Filter) plan).child(), sides, conditions);
        } else {
            sides.add(ofDropped(plan));
        }
    }

    static boolean sumsUp(LogicalPlan plan) {
        boolean isAbove = plan instanceof Project || plan instanceof Filter;
        return plan instanceof Aggregate || isAbove && sumsUp((LogicalPlan) (Object) plan.children().head());
    }

    String of(LogicalPlan plan) throws NativeSql.Declined {
        String name = results.name(plan, droppers > 0);
        return name == null ? rows(plan) : named(name, plan);
    }

    /** Returns a plan that is computed by itself: nothing drops rows of it. */
    String alone(LogicalPlan plan, boolean isValue) throws NativeSql.Declined {
        int above = droppers;
        droppers = 0;
        String sql = isValue ? of(plan) : rows(plan);
        droppers = above;
        return sql;
    }

    /** Returns the rows of a plan of which what is above may drop some, before or after their values are computed. */
    private String ofDropped(LogicalPlan plan) throws NativeSql.Declined {
        droppers++;
        String rows = of(plan);
        droppers--;
        return rows;
    }

    /** Returns a condition. A comparison alone is asked of all rows, if nothing above drops some of them before. */
    private String condition(Expression condition) throws NativeSql.Declined {
        Expression needed = NativeConditions.withoutNulls(condition);
        return droppers > 0 || needed instanceof And ? NativeSql.condition(condition) : NativeSql.of(needed);
    }

    /** Checks that no value fails of a row that may be dropped: Spark computes it, and DuckDB perhaps not. */
    private void checkSafe(Seq<?> values) throws NativeSql.Declined {
        for (Object value : Catalyst.each(values)) {
            if (droppers > 0 && !ExpressionSafety.cannotFail(NativeResults.withValues((Expression) value))) {
                throw new NativeSql.Declined("a value that may fail, of a row that may be dropped");
            }
        }
    }

    private String rows(LogicalPlan plan) throws NativeSql.Declined {
        if (isScan(plan)) {
            return scan(plan);
        }
        if (plan instanceof OneRowRelation) {
            return "SELECT 1 AS nothing";
        }
        if (plan instanceof Project) {
            checkSafe(((Project) plan).projectList());
            return "SELECT " + NativePart.named(((Project) plan).projectList()) + " FROM (" + of(((Project) plan).child()) + ")";
        }
        if (plan instanceof Filter) {
            Filter filter = (Filter) plan;
            return "SELECT * FROM (" + ofDropped(filter.child()) + ") WHERE " + condition(filter.condition());
        }
        if (plan instanceof Join) {
            Join join = (Join) plan;
            exchanges = true;
            return NativePairs.isInner(join) ? inner(join) : NativePairs.of(join, ofDropped(join.left()), ofDropped(join.right()));
        }
        if (plan instanceof Aggregate) {
            exchanges = true;
            for (Object each : Catalyst.each(((Aggregate) plan).aggregateExpressions())) {
                boolean isFunction = each instanceof Alias && ((Alias) each).child() instanceof AggregateExpression;
                checkSafe(isFunction ? ((AggregateExpression) ((Alias) each).child()).aggregateFunction().children() : Catalyst.seq((Expression) each));
            }
            return NativeGroups.of((Aggregate) plan, of(((Aggregate) plan).child()));
        }
        if (plan instanceof Union) {
            StringBuilder found = new StringBuilder();
            for (Object child : Catalyst.each(plan.children())) {
                checkTypes((LogicalPlan) child, plan);
                String rows = named("(" + of((LogicalPlan) child) + ")", plan);
                found.append(found.length() == 0 ? "" : " UNION ALL ").append(rows);
            }
            return found.toString();
        }
        if (plan instanceof GlobalLimit && ((GlobalLimit) plan).child() instanceof LocalLimit) {
            LogicalPlan below = ((LocalLimit) ((GlobalLimit) plan).child()).child();
            if (below instanceof Sort && ((Sort) below).global()) {
                return NativeOrder.of((GlobalLimit) plan, (Sort) below, ofDropped(((Sort) below).child()));
            }
        }
        if (plan instanceof Window) {
            checkSafe(((Window) plan).windowExpressions());
            return NativeWindows.of((Window) plan, of(((Window) plan).child()));
        }
        if (plan instanceof Expand) {
            return NativeGroups.expanded((Expand) plan, of(((Expand) plan).child()));
        }
        throw new NativeSql.Declined("operator " + Catalyst.name(plan));
    }

    /** Returns rows with the names of a plan's columns. */
    private static String named(String rows, LogicalPlan plan) throws NativeSql.Declined {
        return "SELECT * FROM " + rows + " AS t(" + columns(plan) + ")";
    }

    private static String columns(LogicalPlan plan) throws NativeSql.Declined {
        StringBuilder names = new StringBuilder();
        for (Object column : Catalyst.each(plan.output())) {
            names.append(names.length() == 0 ? "" : ", ").append(NativeSql.column((AttributeReference) column));
        }
        if (names.length() == 0) {
            throw new NativeSql.Declined("no columns");
        }
        return names.toString();
    }

    private static void checkTypes(LogicalPlan one, LogicalPlan other) throws NativeSql.Declined {
        List<?> mine = Catalyst.each(one.output());
        List<?> theirs = Catalyst.each(other.output());
        for (int i = 0; i < mine.size(); i++) {
            if (!Catalyst.type((Expression) mine.get(i)).equals(Catalyst.type((Expression) theirs.get(i)))) {
                throw new NativeSql.Declined("a union of different types");
            }
        }
    }

    /** Whether a plan filters and projects the rows of a table, and does nothing else. */
    static boolean isScan(QueryPlan<?> plan) {
        if (plan instanceof Project || plan instanceof Filter) {
            return isScan((LogicalPlan) (Object) plan.children().head());
        }
        return plan instanceof LogicalRelation;
    }

    private String scan(LogicalPlan plan) throws NativeSql.Declined {
        for (LogicalPlan one = plan; one instanceof Project; one = ((Project) one).child()) {
            checkSafe(((Project) one).projectList()); // Spark's optimiser leaves none below a filter that might fail
        }
        LogicalPlan copy = plan.clone(); // the planner leaves its tags on what it is given
        HandoverRule.leave(copy);
        Object physical = planner.plan(copy).next();
        int place = scans.size();
        scans.add(null); // a subquery of its conditions has scans of its own
        NativePart part = new NativePart((SparkPlan) physical, "scan_" + place);
        scans.set(place, part.scan);
        return part.sql;
    }
}
