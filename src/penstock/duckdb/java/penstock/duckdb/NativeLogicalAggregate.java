package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Complete aggregates of an optimized plan in DuckDB's SQL; see `NativeQuery`. */
final class NativeLogicalAggregate {
    /** Functions with the same result in DuckDB, in any order of the rows. */
    static final Map<String, Object> SIMPLE_FUNCTIONS = Catalyst.pairs("Min min Max max BitAndAgg bit_and BitOrAgg bit_or BitXorAgg bit_xor");
    /** Expressions that Spark adds around floating-point keys. */
    private static final Set<String> KEY_WRAPPERS = Catalyst.words("KnownFloatingPointNormalized NormalizeNaNAndZero");

    /** Returns an aggregate of the rows of a query. Declines expressions of functions, see `NativeNormalization`. */
    static String of(Aggregate plan, String rows) throws Declined {
        String groups = keyColumns(plan.groupingExpressions(), "grouping by expressions other than columns", true);
        boolean hasFunctions = false;
        StringBuilder columns = new StringBuilder();
        for (Object element : Catalyst.each(plan.aggregateExpressions())) {
            columns.append(columns.length() == 0 ? "" : ", ");
            if (element instanceof AttributeReference) {
                String name = NativeSql.column((AttributeReference) element);
                columns.append(NativeTypes.normalized(name, ((AttributeReference) element).dataType())).append(" AS ").append(name);
                continue;
            }
            Expression value = ((Alias) element).child();
            AggregateExpression function = value instanceof AggregateExpression ? (AggregateExpression) value : null;
            hasFunctions |= function != null;
            String sql = function == null ? NativeSql.of(value) : of(function, NativePartialAggregate.filter(function));
            columns.append(sql).append(" AS c").append(((Alias) element).exprId().id());
        }
        // Without groups and functions, such as for count(), the result is still a single row.
        String input = groups.isEmpty() && !hasFunctions ? "SELECT count(*) FROM (" + rows + ")" : rows;
        return "SELECT " + (columns.length() == 0 ? "1 AS nothing" : columns) + " FROM (" + input + ")" + (groups.isEmpty() ? "" : " GROUP BY " + groups);
    }

    /** Returns key columns, separated by commas and normalized on request; declines other expressions. */
    static String keyColumns(Seq<?> keys, String reason, boolean normalizes) throws Declined {
        List<String> columns = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            Expression column = (Expression) key;
            while (column.children().size() == 1 && KEY_WRAPPERS.contains(Catalyst.name(column))) {
                column = Catalyst.first(column);
            }
            if (!(column instanceof AttributeReference)) {
                throw new Declined(reason);
            }
            String name = NativeSql.column((AttributeReference) column);
            columns.add(normalizes ? NativeTypes.normalized(name, column.dataType()) : name);
        }
        return String.join(", ", columns);
    }

    /** Returns an aggregate function; a suffix (FILTER or OVER) follows each function call in DuckDB's SQL. */
    static String of(AggregateExpression expression, String suffix) throws Declined {
        AggregateFunction function = expression.aggregateFunction();
        NativeTemplates.checkIncluded(function);
        String name = Catalyst.name(function);
        String distinct = expression.isDistinct() ? "DISTINCT " : "";
        List<?> arguments = Catalyst.each(function.children());
        if (name.equals("Count") && expression.isDistinct()) {
            return distinctCount(arguments, suffix);
        }
        if (name.equals("Count") && !expression.isDistinct()) {
            return NativePartialAggregate.count(function, suffix);
        }
        if (NativeStatistics.isSupported(function)) {
            return NativeStatistics.of(function, distinct, suffix);
        }
        if (name.equals("MinBy") || name.equals("MaxBy")) {
            return extreme(name.equals("MinBy") ? "arg_min" : "arg_max", arguments, suffix);
        }
        if (name.equals("First") || name.equals("Last")) {
            throw new Declined("the first or last value of rows in no order");
        }
        if (name.equals("HyperLogLogPlusPlus")) {
            throw new Declined("an approximate number of distinct values, which each engine estimates differently");
        }
        if (arguments.size() != 1 || NumericTypes.overflowMode(function).equals("TRY")) {
            throw new Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        if (SIMPLE_FUNCTIONS.containsKey(name)) {
            return SIMPLE_FUNCTIONS.get(name) + "(" + NativeSql.of(child) + ")" + suffix;
        }
        if (name.equals("Sum")) {
            return sum(child, distinct, suffix, NumericTypes.overflowMode(function));
        }
        if (name.equals("Average")) {
            return average(function, child, distinct, suffix);
        }
        throw new Declined("aggregate " + name);
    }

    /** Returns the value of the row with the least or greatest order; if several rows have it, an error, as Spark returns any. */
    private static String extreme(String function, List<?> arguments, String suffix) throws Declined {
        if (suffix.startsWith(" OVER")) {
            throw new Declined("min_by or max_by in a window");
        }
        String order = NativeSql.at(arguments, 1);
        String extremes = function + "(" + order + ", " + order + ", 2)" + suffix;
        return "(CASE WHEN list_extract(" + extremes + ", 1) = list_extract(" + extremes + ", 2) THEN error('rows of the same order') ELSE " + function + "_null("
                + NativeSql.list(arguments, ", ") + ")" + suffix + " END)";
    }

    /** Returns the number of distinct combinations of values of which none is null. */
    private static String distinctCount(List<?> arguments, String suffix) throws Declined {
        if (arguments.size() == 1) {
            return "count(DISTINCT " + NativeSql.at(arguments, 0) + ")" + suffix;
        }
        StringBuilder allNotNull = new StringBuilder();
        for (Object argument : arguments) {
            allNotNull.append(allNotNull.length() == 0 ? "" : " AND ").append(NativeSql.condition((Expression) argument)).append(" IS NOT NULL");
        }
        return "count(DISTINCT CASE WHEN " + allNotNull + " THEN row(" + NativeSql.list(arguments, ", ") + ") END)" + suffix;
    }

    private static String sum(Expression child, String distinct, String suffix, String mode) throws Declined {
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return unscaledSum(child, distinct, suffix, "BIGINT");
        }
        String sql = NativeSql.of(child);
        if (child.dataType() instanceof DecimalType) {
            DecimalType type = (DecimalType) child.dataType();
            String typeName = NativeTypes.nameOf(NumericTypes.sumType(type));
            String bound = NumericTypes.isSummedExactly(type) ? null : NativeTypes.largestSum(type);
            if (bound != null && distinct.isEmpty() && suffix.isEmpty() && NativeArithmetic.isShortProduct(child)) {
                return "CAST(sum_of_products(" + sql + ", " + bound + ") AS " + typeName + ")";
            }
            return NativePartialAggregate.sum(distinct, sql, suffix, typeName, bound);
        }
        if (NumericTypes.isFloating(child.dataType())) {
            return NativePartialAggregate.floatingSum(distinct, sql, suffix);
        }
        if (!NumericTypes.isInteger(child.dataType())) {
            throw new Declined("a sum of " + Catalyst.type(child));
        }
        return NativePartialAggregate.integerSum(distinct, sql, suffix, NumericTypes.sumFitsLong(child), mode);
    }

    /** Returns the sum of unscaled decimals: summing the decimals is faster, with the same unscaled result. */
    private static String unscaledSum(Expression child, String distinct, String suffix, String type) throws Declined {
        Expression decimal = Catalyst.first(child);
        DecimalType sumType = NumericTypes.sumType((DecimalType) decimal.dataType());
        String sum = "CAST(sum(" + distinct + NativeSql.of(decimal) + ")" + suffix + " AS " + NativeTypes.nameOf(sumType) + ")";
        return "CAST(" + NativeDecimals.unscaled(sum, sumType) + " AS " + type + ")";
    }

    /**
     * Returns an average: for integers and floating-point numbers a quotient of doubles, for decimals a quotient of integers
     * that is rounded half up, like Spark's decimals.
     */
    private static String average(AggregateFunction function, Expression child, String distinct, String suffix) throws Declined {
        String sql = NativeSql.of(child);
        String count = "count(" + distinct + sql + ")" + suffix;
        if (NumericTypes.isInteger(child.dataType()) || NumericTypes.isFloating(child.dataType())) {
            String sum = NativePartialAggregate.averagedSum(distinct, sql, suffix, child, 1);
            return "CASE WHEN " + count + " = 0 THEN NULL ELSE (" + sum + ") / CAST(" + count + " AS DOUBLE) END";
        }
        if (!NumericTypes.isSummedExactly(child.dataType())) {
            throw new Declined("an average of " + Catalyst.type(child));
        }
        DecimalType sumType = NumericTypes.sumType((DecimalType) child.dataType());
        String sum = "CAST(sum(" + distinct + sql + ")" + suffix + " AS " + NativeTypes.nameOf(sumType) + ")";
        return NativeDecimals.mean(sum, sumType, count, (DecimalType) function.dataType());
    }

    /** Returns the rows of a query, copied for each projection, such as a grouping set. */
    static String expanded(Expand plan, String rows) throws Declined {
        List<?> projections = Catalyst.each(plan.projections());
        List<?> output = Catalyst.each(plan.output());
        StringBuilder columns = new StringBuilder();
        for (int column = 0; column < output.size(); column++) {
            String first = null;
            boolean differs = false;
            StringBuilder cases = new StringBuilder();
            for (int i = 0; i < projections.size(); i++) {
                Expression value = (Expression) Catalyst.each((Seq<?>) projections.get(i)).get(column);
                String sql = NativeSql.of(value);
                differs |= first != null && !first.equals(sql);
                first = first == null ? sql : first;
                cases.append(" WHEN ").append(i).append(" THEN ").append(sql);
            }
            columns.append(column == 0 ? "" : ", ").append(differs ? "(CASE copy" + cases + " END)" : first).append(" AS ")
                    .append(NativeSql.column((AttributeReference) output.get(column)));
        }
        return "SELECT " + columns + " FROM (" + rows + ") CROSS JOIN range(" + projections.size() + ") AS copies(copy)";
    }
}
