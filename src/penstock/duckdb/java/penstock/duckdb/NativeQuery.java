package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
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

import penstock.delegation.DelegationRule;
import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/** An optimized plan, or a part of it, as a single DuckDB query over all files of its tables; see `NativeQueries`. */
final class NativeQuery {
    final LogicalPlan plan;
    final String sql;
    /** The scans of its tables, which are named ``scan_0`` and so on in the query. */
    final List<Object> scans = new ArrayList<>();
    /** Whether the plan has joins, aggregates or first rows, whose exchanges DuckDB saves. Exchanges of windows do not count. */
    boolean needsExchange;
    final NativeResults results; // the intermediate results that the query reads
    /** The number of operators above the visited plan that may drop its rows: DuckDB may miss errors in them. */
    private int droppingOperators;
    private final SparkPlanner planner;

    NativeQuery(LogicalPlan plan, SparkPlanner planner) throws Declined {
        this.plan = plan;
        this.planner = planner;
        results = new NativeResults(this, plan);
        sql = results.translate(plan);
    }

    /** Whether a plan aggregates rows or takes the first rows, so that its result is probably small. */
    static boolean reduces(LogicalPlan plan) {
        if (plan instanceof Aggregate || plan instanceof GlobalLimit) {
            return true;
        }
        int reducingChildren = 0;
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            reducingChildren += reduces(child) ? 1 : 0;
        }
        boolean passesRows = plan instanceof Join || plan instanceof Project || plan instanceof Window || plan instanceof Filter;
        return plan instanceof Union ? reducingChildren == plan.children().size() : passesRows && reducingChildren > 0;
    }

    private static boolean hasAtMostSingleRow(LogicalPlan plan) {
        return plan.maxRows().isDefined() && ((Long) plan.maxRows().get()).longValue() <= 1;
    }

    /** Returns adjacent inner joins as a flat list with all conditions: DuckDB chooses the join order. */
    private String innerJoin(Join join) throws Declined {
        List<Object> sides = new ArrayList<>();
        List<String> conditions = new ArrayList<>();
        addSides(join, sides, conditions);
        StringBuilder from = new StringBuilder();
        for (Object side : sides) {
            from.append(from.length() == 0 ? "" : ", ").append("(").append(side).append(") AS side_").append(from.length());
        }
        String where = conditions.isEmpty() ? "" : " WHERE " + String.join(" AND ", conditions);
        return "SELECT " + columns(join) + " FROM " + from + where;
    }

    private void addSides(LogicalPlan plan, List<Object> sides, List<String> conditions) throws Declined {
        if (plan instanceof Join && NativeLogicalJoin.isInner((Join) plan)) {
            Join join = (Join) plan;
            NativeSql.checkSides(join.left().output(), join.right().output());
            conditions.addAll(NativeLogicalJoin.ofInner(join, hasAtMostSingleRow(join.left()) || hasAtMostSingleRow(join.right())));
            addSides(join.left(), sides, conditions);
            addSides(join.right(), sides, conditions);
        } else if (!isScan(plan) && Catalyst.isPruning(plan)) {
            addSides(((Project) plan).child(), sides, conditions);
        } else if (!isScan(plan) && !isAggregate(plan) && plan instanceof Filter) {
            conditions.add(NativeSql.condition(((Filter) plan).condition()));
            addSides(((Filter) plan).child(), sides, conditions);
        } else {
            sides.add(ofDroppable(plan));
        }
    }

    /** Whether a plan is an aggregate with only filters and projections above. */
    static boolean isAggregate(LogicalPlan plan) {
        boolean isFilterOrProject = plan instanceof Project || plan instanceof Filter;
        return plan instanceof Aggregate || isFilterOrProject && isAggregate(Catalyst.onlyChild(plan));
    }

    /** Returns the query of a plan. It reads the intermediate result of the plan, if there is one. */
    String of(LogicalPlan plan) throws Declined {
        String name = results.name(plan, droppingOperators > 0);
        return name == null ? rows(plan) : withColumnsOf(plan, name);
    }

    /** Returns the query of a plan that DuckDB materializes first: no operator above can drop its rows unchecked. */
    String separately(LogicalPlan plan, boolean isScalar) throws Declined {
        int outerOperators = droppingOperators;
        droppingOperators = 0;
        String sql = isScalar ? of(plan) : rows(plan);
        droppingOperators = outerOperators;
        return sql;
    }

    /** Returns the query of a plan whose rows the operator above may drop, before or after computing values. */
    private String ofDroppable(LogicalPlan plan) throws Declined {
        droppingOperators++;
        String rows = of(plan);
        droppingOperators--;
        return rows;
    }

    /** Returns a condition. If it may fail, it must not be an AND or below a dropping operator: DuckDB may skip it. */
    private String condition(Expression condition) throws Declined {
        Expression required = NativeConditions.withoutRedundantNotNull(condition);
        return droppingOperators > 0 || required instanceof And ? NativeSql.condition(condition) : NativeSql.of(required);
    }

    /** Checks that no value of a droppable row fails: Spark computes the value, DuckDB possibly not. */
    private void checkSafe(Seq<?> values) throws Declined {
        for (Object value : Catalyst.each(values)) {
            if (droppingOperators > 0 && !ExpressionSafety.cannotFail(NativeResults.withoutSubqueries((Expression) value))) {
                throw new Declined("a value that may fail, of a row that may be dropped");
            }
        }
    }

    private String rows(LogicalPlan plan) throws Declined { // `of` may read an intermediate result instead
        if (isScan(plan)) {
            return scan(plan);
        }
        if (plan instanceof OneRowRelation) {
            return "SELECT 1 AS nothing";
        }
        if (plan instanceof Project) {
            checkSafe(((Project) plan).projectList());
            return "SELECT " + NativeSql.selectList(((Project) plan).projectList()) + " FROM (" + of(((Project) plan).child()) + ")";
        }
        if (plan instanceof Filter) {
            Filter filter = (Filter) plan;
            String where = " WHERE " + condition(filter.condition());
            if (NativeWindows.limitsGroups(filter) && results.name(filter.child(), true) == null) {
                Window window = (Window) filter.child();
                return NativeWindows.firstOfGroups(window, ofDroppable(window.child()), where);
            }
            return "SELECT * FROM (" + ofDroppable(filter.child()) + ")" + where;
        }
        if (plan instanceof Join) {
            Join join = (Join) plan;
            needsExchange = true;
            return NativeLogicalJoin.isInner(join) ? innerJoin(join) : NativeLogicalJoin.of(join, ofDroppable(join.left()), ofDroppable(join.right()));
        }
        if (plan instanceof Aggregate) {
            needsExchange = true;
            for (Object element : Catalyst.each(((Aggregate) plan).aggregateExpressions())) {
                boolean isFunction = element instanceof Alias && ((Alias) element).child() instanceof AggregateExpression;
                checkSafe(isFunction ? ((AggregateExpression) ((Alias) element).child()).aggregateFunction().children() : Catalyst.seq((Expression) element));
            }
            return NativeLogicalAggregate.of((Aggregate) plan, of(((Aggregate) plan).child()));
        }
        if (plan instanceof Union) {
            StringBuilder union = new StringBuilder();
            for (LogicalPlan child : Catalyst.each(plan.children())) {
                checkTypes(child, plan);
                String rows = withColumnsOf(plan, "(" + of(child) + ")");
                union.append(union.length() == 0 ? "" : " UNION ALL ").append(rows);
            }
            return union.toString();
        }
        Sort sort = NativeWindows.sortOfFirstRows(plan);
        if (sort != null) {
            needsExchange = true;
            return NativeWindows.firstRows((GlobalLimit) plan, sort, ofDroppable(sort.child()));
        }
        if (plan instanceof Window) {
            checkSafe(((Window) plan).windowExpressions());
            return NativeWindows.of((Window) plan, of(((Window) plan).child()));
        }
        if (plan instanceof Generate) {
            checkSafe(Catalyst.seq((Expression) ((Generate) plan).generator()));
            return NativeJson.exploded((Generate) plan, ofDroppable(Catalyst.onlyChild(plan)));
        }
        if (plan instanceof Expand) {
            return NativeLogicalAggregate.expanded((Expand) plan, of(((Expand) plan).child()));
        }
        throw Declined.operator(plan);
    }

    /** Renames the columns of rows to those of a plan. */
    private static String withColumnsOf(LogicalPlan plan, String rows) throws Declined {
        return "SELECT * FROM " + rows + " AS t(" + columns(plan) + ")";
    }

    private static String columns(LogicalPlan plan) throws Declined {
        if (plan.output().isEmpty()) {
            throw new Declined("a plan without columns");
        }
        return NativeSql.columns(plan.output());
    }

    private static void checkTypes(LogicalPlan child, LogicalPlan union) throws Declined {
        List<?> childColumns = Catalyst.each(child.output());
        List<?> unionColumns = Catalyst.each(union.output());
        for (int i = 0; i < childColumns.size(); i++) {
            if (!Catalyst.type((Expression) childColumns.get(i)).equals(Catalyst.type((Expression) unionColumns.get(i)))) {
                throw new Declined("a union of different types");
            }
        }
    }

    /** Whether a plan only filters and projects the rows of a table. */
    static boolean isScan(LogicalPlan plan) {
        if (plan instanceof Project || plan instanceof Filter) {
            return isScan(Catalyst.onlyChild(plan));
        }
        return plan instanceof LogicalRelation;
    }

    private String scan(LogicalPlan plan) throws Declined {
        for (LogicalPlan projection = plan; projection instanceof Project; projection = ((Project) projection).child()) {
            checkSafe(((Project) projection).projectList()); // the optimizer leaves no failing values below a filter
        }
        LogicalPlan copy = plan.clone(); // the planner tags the nodes of its input
        DelegationRule.exclude(copy);
        Object physical = planner.plan(copy).next();
        int index = scans.size();
        scans.add(null); // a subquery in the conditions of this scan adds further scans
        NativePart part = new NativePart((SparkPlan) physical, "scan_" + index);
        scans.set(index, part.scan);
        return part.sql;
    }
}
