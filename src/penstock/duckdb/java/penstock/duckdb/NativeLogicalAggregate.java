package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Complete aggregates of an optimized plan in DuckDB's SQL; see `NativeQuery`. */
final class NativeLogicalAggregate {
    /** Returns an aggregate of the rows of a query. Declines expressions of functions, see `NativeNormalization`. */
    static String of(Aggregate plan, String rows) throws NativeSql.Declined {
        String groups = keyColumns(plan.groupingExpressions(), "grouping by expressions other than columns");
        StringBuilder columns = new StringBuilder();
        for (Object element : Catalyst.each(plan.aggregateExpressions())) {
            columns.append(columns.length() == 0 ? "" : ", ");
            if (element instanceof AttributeReference) {
                columns.append(NativeSql.column((AttributeReference) element));
                continue;
            }
            Expression value = ((Alias) element).child();
            AggregateExpression function = value instanceof AggregateExpression ? (AggregateExpression) value : null;
            String sql = function == null ? NativeSql.of(value) : of(function, NativePartialAggregate.filter(function));
            columns.append(sql).append(" AS c").append(((Alias) element).exprId().id());
        }
        return "SELECT " + (columns.length() == 0 ? "1 AS nothing" : columns) + " FROM (" + rows + ")" + (groups.isEmpty() ? "" : " GROUP BY " + groups);
    }

    /** Returns the names of key columns, separated by commas; declines other expressions and floating-point columns. */
    static String keyColumns(Seq<?> keys, String reason) throws NativeSql.Declined {
        List<String> columns = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            if (!(key instanceof AttributeReference) || NumericTypes.isFloating(((AttributeReference) key).dataType())) {
                throw new NativeSql.Declined(reason);
            }
            columns.add(NativeSql.column((AttributeReference) key));
        }
        return String.join(", ", columns);
    }

    /** Returns an aggregate function; a suffix (FILTER or OVER) follows each function call in DuckDB's SQL. */
    static String of(AggregateExpression expression, String suffix) throws NativeSql.Declined {
        AggregateFunction function = expression.aggregateFunction();
        String name = Catalyst.name(function);
        String distinct = expression.isDistinct() ? "DISTINCT " : "";
        List<?> arguments = Catalyst.each(function.children());
        if (name.equals("Count") && expression.isDistinct() && arguments.size() == 1 && !NumericTypes.isFloating(Catalyst.first(function).dataType())) {
            return "count(DISTINCT " + NativeSql.of(Catalyst.first(function)) + ")" + suffix;
        }
        if (name.equals("Count") && !expression.isDistinct()) {
            return NativePartialAggregate.count(function, suffix);
        }
        if (arguments.size() != 1 || NumericTypes.overflowMode(function).equals("TRY")) {
            throw new NativeSql.Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        if ((name.equals("Min") || name.equals("Max")) && !NumericTypes.isFloating(child.dataType())) {
            return name.toLowerCase(Locale.ROOT) + "(" + NativeSql.of(child) + ")" + suffix;
        }
        if (name.equals("Sum")) {
            return sum(child, distinct, suffix, NumericTypes.overflowMode(function));
        }
        if (name.equals("Average")) {
            return average(function, child, distinct, suffix);
        }
        throw new NativeSql.Declined("aggregate " + name);
    }

    private static String sum(Expression child, String distinct, String suffix, String mode) throws NativeSql.Declined {
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return unscaledSum(child, distinct, suffix, "BIGINT");
        }
        String sql = NativeSql.of(child);
        if (child.dataType() instanceof DecimalType) {
            DecimalType type = (DecimalType) child.dataType();
            String typeName = NativeTypes.nameOf(NumericTypes.sumType(type));
            return NativePartialAggregate.sum(distinct, sql, suffix, typeName, NumericTypes.isSummedExactly(type) ? null : NativeTypes.largestSum(type));
        }
        if (!NumericTypes.isInteger(child.dataType())) {
            throw new NativeSql.Declined("a sum of " + Catalyst.type(child));
        }
        return NativePartialAggregate.integerSum(distinct, sql, suffix, NumericTypes.sumFitsLong(child), mode);
    }

    /** Returns the sum of unscaled decimals: summing the decimals is faster, with the same unscaled result. */
    private static String unscaledSum(Expression child, String distinct, String suffix, String type) throws NativeSql.Declined {
        Expression decimal = Catalyst.first(child);
        DecimalType sumType = NumericTypes.sumType((DecimalType) decimal.dataType());
        String sum = "CAST(sum(" + distinct + NativeSql.of(decimal) + ")" + suffix + " AS " + NativeTypes.nameOf(sumType) + ")";
        return "CAST(" + NativeDecimals.unscaled(sum, sumType) + " AS " + type + ")";
    }

    /**
     * Returns an average: for integers a quotient of doubles (`NativePartialAggregate.doubleSum`), for decimals a quotient of
     * integers that is rounded half up, like Spark's decimals.
     */
    private static String average(AggregateFunction function, Expression child, String distinct, String suffix) throws NativeSql.Declined {
        String sql = NativeSql.of(child);
        String count = "count(" + distinct + sql + ")" + suffix;
        if (NumericTypes.isInteger(child.dataType())) {
            String sum = NativePartialAggregate.doubleSum(distinct, sql, suffix, child, 1);
            return "CASE WHEN " + count + " = 0 THEN NULL ELSE " + sum + " / CAST(" + count + " AS DOUBLE) END";
        }
        if (!NumericTypes.isSummedExactly(child.dataType())) {
            throw new NativeSql.Declined("an average of " + Catalyst.type(child));
        }
        DecimalType sumType = NumericTypes.sumType((DecimalType) child.dataType());
        String sum = "CAST(sum(" + distinct + sql + ")" + suffix + " AS " + NativeTypes.nameOf(sumType) + ")";
        return NativeDecimals.mean(sum, sumType, count, (DecimalType) function.dataType());
    }

    /** Returns the rows of a query, copied for each projection, such as a grouping set. */
    static String expanded(Expand plan, String rows) throws NativeSql.Declined {
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
