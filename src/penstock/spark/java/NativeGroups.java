package penstock;

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

/** Aggregates of an optimised plan, from rows to results, in the SQL of DuckDB; see `NativeQuery`. */
final class NativeGroups {
    private NativeGroups() {
    }

    /** Returns an aggregate of the rows of a query, whose results are columns and functions; see `NativeShape`. */
    static String of(Aggregate plan, String rows) throws NativeSql.Declined {
        StringBuilder groups = new StringBuilder();
        for (Object each : Catalyst.each(plan.groupingExpressions())) {
            if (!(each instanceof AttributeReference) || NativeTypes.isFloating(((Expression) each).dataType())) {
                throw new NativeSql.Declined("groups by something else than columns");
            }
            groups.append(groups.length() == 0 ? " GROUP BY " : ", ").append(NativeSql.column((AttributeReference) each));
        }
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(plan.aggregateExpressions())) {
            found.append(found.length() == 0 ? "" : ", ");
            if (each instanceof AttributeReference) {
                found.append(NativeSql.column((AttributeReference) each));
                continue;
            }
            Expression value = ((Alias) each).child();
            String sql = value instanceof AggregateExpression ? of((AggregateExpression) value) : NativeSql.of(value);
            found.append(sql).append(" AS c").append(((Alias) each).exprId().id());
        }
        return "SELECT " + (found.length() == 0 ? "1 AS nothing" : found) + " FROM (" + rows + ")" + groups;
    }

    private static String of(AggregateExpression one) throws NativeSql.Declined {
        String only = one.filter().isEmpty() ? "" : " FILTER (WHERE " + NativeSql.condition((Expression) (Object) one.filter().get()) + ")";
        return of(one, only);
    }

    /** Returns a function, and after each function of DuckDB's of which rows it is. */
    static String of(AggregateExpression one, String only) throws NativeSql.Declined {
        AggregateFunction function = one.aggregateFunction();
        String name = Catalyst.name(function);
        String distinct = one.isDistinct() ? "DISTINCT " : "";
        List<?> parts = Catalyst.each(function.children());
        if (name.equals("Count") && one.isDistinct() && parts.size() == 1 && !NativeTypes.isFloating(Catalyst.first(function).dataType())) {
            return "count(DISTINCT " + NativeSql.of(Catalyst.first(function)) + ")" + only;
        }
        if (name.equals("Count") && !one.isDistinct()) {
            StringBuilder known = new StringBuilder();
            for (Object part : parts) {
                known.append(known.length() == 0 ? "" : " AND ").append(NativeSql.condition((Expression) part)).append(" IS NOT NULL");
            }
            return "count(CASE WHEN " + known + " THEN 1 END)" + only;
        }
        if (parts.size() != 1 || NativeTypes.mode(function).equals("TRY")) {
            throw new NativeSql.Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        if ((name.equals("Min") || name.equals("Max")) && !NativeTypes.isFloating(child.dataType())) {
            return name.toLowerCase(Locale.ROOT) + "(" + NativeSql.of(child) + ")" + only;
        }
        if (name.equals("Sum")) {
            return sum(child, distinct, only, NativeTypes.mode(function));
        }
        if (name.equals("Average")) {
            return average(function, child, distinct, only);
        }
        throw new NativeSql.Declined("aggregate " + name);
    }

    private static String sum(Expression child, String distinct, String only, String mode) throws NativeSql.Declined {
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return unscaled(child, distinct, only, "BIGINT");
        }
        String sql = NativeSql.of(child);
        if (child.dataType() instanceof DecimalType) {
            DecimalType type = (DecimalType) child.dataType();
            String wanted = NativeTypes.nameOf(NativeTypes.summed(type));
            return NativeAggregate.sum(distinct, sql, only, wanted, NativeTypes.isSummedExactly(type) ? null : NativeTypes.largest(type));
        }
        if (!NativeTypes.isWhole(child.dataType())) {
            throw new NativeSql.Declined("a sum of " + Catalyst.type(child));
        }
        return NativeAggregate.wholeSum(distinct, sql, only, NativeTypes.isSmall(child), mode);
    }

    /** Returns the sum of the digits of decimals: that of the decimals is faster, and its digits are the same. */
    private static String unscaled(Expression child, String distinct, String only, String type) throws NativeSql.Declined {
        Expression decimal = Catalyst.first(child);
        DecimalType summed = NativeTypes.summed((DecimalType) decimal.dataType());
        String sum = "CAST(sum(" + distinct + NativeSql.of(decimal) + ")" + only + " AS " + NativeTypes.nameOf(summed) + ")";
        return "CAST(" + NativeDecimals.digits(sum, summed) + " AS " + type + ")";
    }

    /**
     * Returns an average: of whole numbers a quotient of doubles (`NativeAggregate.doubleSum`), of decimals a quotient of
     * whole numbers that is rounded half up, as Spark's decimals are.
     */
    private static String average(AggregateFunction function, Expression child, String distinct, String only) throws NativeSql.Declined {
        String sql = NativeSql.of(child);
        String count = "count(" + distinct + sql + ")" + only;
        if (NativeTypes.isWhole(child.dataType())) {
            String sum = NativeAggregate.doubleSum(distinct, sql, only, child, 1);
            return "CASE WHEN " + count + " = 0 THEN NULL ELSE " + sum + " / CAST(" + count + " AS DOUBLE) END";
        }
        if (!NativeTypes.isSummedExactly(child.dataType())) {
            throw new NativeSql.Declined("an average of " + Catalyst.type(child));
        }
        DecimalType summed = NativeTypes.summed((DecimalType) child.dataType());
        String sum = "CAST(sum(" + distinct + sql + ")" + only + " AS " + NativeTypes.nameOf(summed) + ")";
        return NativeDecimals.mean(sum, summed, count, (DecimalType) function.dataType());
    }

    /** Returns the rows of a query, each once for every grouping set, or whatever else it is expanded to. */
    static String expanded(Expand plan, String rows) throws NativeSql.Declined {
        List<?> projections = Catalyst.each(plan.projections());
        List<?> output = Catalyst.each(plan.output());
        StringBuilder found = new StringBuilder();
        for (int column = 0; column < output.size(); column++) {
            String first = null;
            boolean differs = false;
            StringBuilder cases = new StringBuilder();
            for (int i = 0; i < projections.size(); i++) {
                Expression one = (Expression) Catalyst.each((Seq<?>) projections.get(i)).get(column);
                String sql = NativeSql.of(one);
                differs |= first != null && !first.equals(sql);
                first = first == null ? sql : first;
                cases.append(" WHEN ").append(i).append(" THEN ").append(sql);
            }
            found.append(column == 0 ? "" : ", ").append(differs ? "(CASE copy" + cases + " END)" : first).append(" AS ")
                    .append(NativeSql.column((AttributeReference) output.get(column)));
        }
        return "SELECT " + found + " FROM (" + rows + ") CROSS JOIN range(" + projections.size() + ") AS copies(copy)";
    }
}
