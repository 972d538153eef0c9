package penstock.duckdb;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Window;

import scala.Product;
import scala.collection.immutable.Seq;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/** Window functions, and the first rows in a sort order (top N), in DuckDB's SQL; see `NativeQuery`. */
final class NativeWindows {
    private static final Map<String, Object> RANKS = Catalyst.pairs("RowNumber row_number() Rank rank() DenseRank dense_rank()");
    private static final Map<String, Object> SHARES = Catalyst.pairs("PercentRank percent_rank() CumeDist cume_dist()");
    private static final Map<String, Object> OFFSETS = Catalyst.pairs("Lead lead Lag lag");
    private static final Map<String, Object> FRAME_VALUES = Catalyst.pairs("First first_value Last last_value NthValue nth_value");

    static String of(Window plan, String rows) throws Declined {
        StringBuilder sql = new StringBuilder("SELECT *");
        for (Object element : Catalyst.each(plan.windowExpressions())) {
            Alias alias = element instanceof Alias ? (Alias) element : null;
            if (alias == null || !(alias.child() instanceof WindowExpression)) {
                throw new Declined("an expression with window functions");
            }
            WindowExpression expression = (WindowExpression) alias.child();
            String over = " OVER (" + partition(plan) + orderBy(plan.orderSpec()) + frame(expression) + ")";
            sql.append(", ").append(value(expression.windowFunction(), over)).append(" AS c").append(alias.exprId().id());
        }
        return sql + " FROM (" + rows + ")";
    }

    /** Whether a filter compares the only window function below, which numbers rows, with a constant. */
    static boolean limitsGroups(Filter filter) {
        Expression condition = filter.condition();
        if (!(filter.child() instanceof Window) || !(condition instanceof BinaryComparison) || !(Catalyst.last(condition) instanceof Literal)) {
            return false;
        }
        List<?> functions = Catalyst.each(((Window) filter.child()).windowExpressions());
        Alias number = functions.size() == 1 && functions.get(0) instanceof Alias ? (Alias) functions.get(0) : null;
        return number != null && number.child() instanceof WindowExpression
                && Catalyst.name(((WindowExpression) number.child()).windowFunction()).equals("RowNumber")
                && Catalyst.first(condition) instanceof Attribute && ((Attribute) Catalyst.first(condition)).exprId().equals(number.exprId());
    }

    /**
     * Returns the rows for which `limitsGroups`; `where` compares their numbers.
     *
     * DuckDB does not sort all rows if it compares its own number, which is a bigint, and if there is a single sort key. DuckDB
     * 1.5 then compares some types wrongly, so the sort key is binary.
     */
    static String firstOfGroups(Window plan, String rows, String where) throws Declined {
        StringBuilder keys = new StringBuilder();
        for (SortOrder key : Catalyst.each(plan.orderSpec())) {
            keys.append(keys.length() == 0 ? "" : ", ").append(sortKey(key)).append(", '").append(key.direction().sql()).append(" ").append(key.nullOrdering().sql()).append("'");
        }
        String name = "c" + ((Alias) Catalyst.each(plan.windowExpressions()).get(0)).exprId().id();
        String over = partition(plan) + " ORDER BY create_sort_key(" + keys + ")";
        return "SELECT * REPLACE (CAST(" + name + " AS INTEGER) AS " + name + ") FROM (SELECT *, row_number() OVER (" + over + ") AS " + name + " FROM (" + rows + "))" + where;
    }

    private static String partition(Window plan) throws Declined {
        String keys = NativeLogicalAggregate.keyColumns(plan.partitionSpec(), "windows partitioned by expressions other than columns", true);
        return keys.isEmpty() ? "" : "PARTITION BY " + keys;
    }

    private static String value(Expression function, String over) throws Declined {
        String name = Catalyst.name(function);
        if (RANKS.containsKey(name)) {
            return "CAST(" + RANKS.get(name) + over + " AS INTEGER)";
        }
        if (SHARES.containsKey(name)) {
            return SHARES.get(name) + over;
        }
        if (name.equals("NTile")) {
            return "CAST(ntile(" + positiveLiteral(Catalyst.first(function)) + ")" + over + " AS INTEGER)";
        }
        if (OFFSETS.containsKey(name)) {
            return OFFSETS.get(name) + "(" + offsetArguments(function) + ")" + over;
        }
        String frameValue = frameValue(function, over);
        if (frameValue != null) {
            return frameValue;
        }
        if (!(function instanceof AggregateExpression) || !((AggregateExpression) function).filter().isEmpty()
                || ((AggregateExpression) function).isDistinct()) {
            throw new Declined("window function " + name);
        }
        return NativeLogicalAggregate.of((AggregateExpression) function, over);
    }

    /** Returns the value, offset and default of `lead` or `lag`. */
    private static String offsetArguments(Expression function) throws Declined {
        Expression value = (Expression) ((Product) function).productElement(0);
        Object offset = ((Product) function).productElement(1);
        Expression defaultValue = (Expression) ((Product) function).productElement(2);
        boolean isConstant = offset instanceof Literal && ((Literal) offset).value() instanceof Integer && defaultValue instanceof Literal;
        if (!isConstant || Boolean.TRUE.equals(((Product) function).productElement(3))) {
            throw new Declined("an offset or default that is not constant, or an offset that skips nulls");
        }
        String arguments = NativeSql.of(value) + ", " + ((Literal) offset).value();
        if (((Literal) defaultValue).value() == null) { // without a default, its type is that of null
            return arguments;
        }
        NativeSql.checkSameTypes(Arrays.<Object>asList(value, defaultValue));
        return arguments + ", " + NativeSql.of(defaultValue);
    }

    /** Returns the first, last or n-th value of a frame; null for other functions. */
    private static String frameValue(Expression function, String over) throws Declined {
        boolean isAggregate = function instanceof AggregateExpression && ((AggregateExpression) function).filter().isEmpty();
        Expression call = isAggregate ? (Expression) (Object) ((AggregateExpression) function).aggregateFunction() : function;
        NativeTemplates.checkIncluded(call);
        String name = Catalyst.name(call);
        if (!FRAME_VALUES.containsKey(name)) {
            return null;
        }
        boolean isNth = name.equals("NthValue");
        String index = isNth ? ", " + positiveLiteral((Expression) ((Product) call).productElement(1)) : "";
        boolean ignoresNulls = Boolean.TRUE.equals(((Product) call).productElement(isNth ? 2 : 1));
        return FRAME_VALUES.get(name) + "(" + NativeSql.of(Catalyst.first(call)) + index + (ignoresNulls ? " IGNORE NULLS" : "") + ")" + over;
    }

    private static String positiveLiteral(Expression number) throws Declined {
        Object value = number instanceof Literal ? ((Literal) number).value() : null;
        if (!(value instanceof Integer) || ((Integer) value).intValue() < 1) {
            throw new Declined("a number of a window function that is not constant");
        }
        return value.toString();
    }

    static String orderBy(Seq<SortOrder> orders) throws Declined {
        StringBuilder keys = new StringBuilder();
        for (SortOrder key : Catalyst.each(orders)) {
            keys.append(keys.length() == 0 ? " ORDER BY " : ", ").append(sortKey(key)).append(" ").append(key.direction().sql())
                    .append(" ").append(key.nullOrdering().sql());
        }
        return keys.toString();
    }

    /** Returns a sort key, normalized also because DuckDB returns the key of a sort as its column, with -0.0 as 0.0. */
    private static String sortKey(SortOrder key) throws Declined {
        if (!ExpressionSafety.cannotFail(key.child())) {
            throw new Declined("sorting by a value that may fail");
        }
        return NativeTypes.normalized(NativeSql.of(key.child()), key.child().dataType());
    }

    /** Returns the sort of which a plan returns the first rows, possibly after an offset; null for other plans. */
    static Sort sortOfFirstRows(LogicalPlan plan) {
        LogicalPlan limited = limited(plan);
        return limited instanceof Sort && ((Sort) limited).global() ? (Sort) limited : null;
    }

    /** Returns the projection between the limit and the sort of a plan that returns first rows; null for other plans. */
    static Project selectionOfFirstRows(LogicalPlan plan) {
        LogicalPlan limited = limited(plan);
        LogicalPlan sort = limited instanceof Project ? ((Project) limited).child() : null;
        return sort instanceof Sort && ((Sort) sort).global() ? (Project) limited : null;
    }

    /** Returns a plan that returns first rows without the projection between its limits and its sort. */
    static LogicalPlan withoutSelection(LogicalPlan plan) {
        LogicalPlan child = Catalyst.onlyChild(plan);
        return (LogicalPlan) (Object) plan.withNewChildren(Catalyst.seq(child instanceof Project ? ((Project) child).child() : withoutSelection(child)));
    }

    /** Returns the plan below limits and an offset, null if a plan has none. */
    private static LogicalPlan limited(LogicalPlan plan) {
        LogicalPlan below = plan instanceof GlobalLimit ? ((GlobalLimit) plan).child() : null;
        below = below instanceof Offset ? ((Offset) below).child() : below;
        return below instanceof LocalLimit ? ((LocalLimit) below).child() : null;
    }

    /** Returns the first rows of a query in a sort order; see `sortOfFirstRows`. */
    static String firstRows(GlobalLimit limit, Sort sort, String rows) throws Declined {
        Expression offset = limit.child() instanceof Offset ? ((Offset) limit.child()).offsetExpr() : null;
        LocalLimit local = (LocalLimit) (offset == null ? limit.child() : Catalyst.onlyChild(limit.child()));
        if (!(limit.limitExpr() instanceof Literal) || !(offset == null || offset instanceof Literal) || !(local.limitExpr() instanceof Literal)) {
            throw new Declined("a limit that is not constant");
        }
        if (number(local.limitExpr()) != number(limit.limitExpr()) + (offset == null ? 0 : number(offset))) {
            throw new Declined("a smaller limit in each task");
        }
        return "SELECT * FROM (" + rows + ")" + orderBy(sort.order()) + " LIMIT " + limit.limitExpr() + (offset == null ? "" : " OFFSET " + offset);
    }

    private static long number(Expression literal) {
        return ((Number) ((Literal) literal).value()).longValue();
    }

    /** Returns the frame of a window function, with constant numbers of rows. */
    private static String frame(WindowExpression expression) throws Declined {
        String name = Catalyst.name(expression.windowFunction());
        if (RANKS.containsKey(name) || SHARES.containsKey(name) || OFFSETS.containsKey(name) || name.equals("NTile")) {
            return ""; // these functions have no frame in DuckDB
        }
        Object frame = expression.windowSpec().frameSpecification();
        if (frame instanceof SpecifiedWindowFrame) {
            SpecifiedWindowFrame specified = (SpecifiedWindowFrame) frame;
            boolean countsRows = Catalyst.name(specified.frameType()).equals("RowFrame");
            return (countsRows ? " ROWS" : " RANGE") + " BETWEEN " + bound(specified.lower(), countsRows) + " AND " + bound(specified.upper(), countsRows);
        }
        throw new Declined("a window with another frame");
    }

    private static String bound(Expression bound, boolean countsRows) throws Declined {
        String name = Catalyst.name(bound);
        if (name.equals("CurrentRow") || name.equals("UnboundedPreceding") || name.equals("UnboundedFollowing")) {
            return name.equals("CurrentRow") ? "CURRENT ROW" : name.equals("UnboundedPreceding") ? "UNBOUNDED PRECEDING" : "UNBOUNDED FOLLOWING";
        }
        Object rows = bound instanceof Literal ? ((Literal) bound).value() : null;
        if (!countsRows || !(rows instanceof Integer)) {
            throw new Declined("a window with another frame");
        }
        int count = ((Integer) rows).intValue();
        return Math.abs(count) + (count < 0 ? " PRECEDING" : " FOLLOWING");
    }
}
