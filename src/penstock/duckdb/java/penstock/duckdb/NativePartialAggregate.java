package penstock.duckdb;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** DuckDB's SQL of a partial aggregate before an exchange; its columns are groups, and buffers of Spark's functions. */
final class NativePartialAggregate {
    private static final String MAX_LONG = "9223372036854775807";
    /** Doubles represent every integer up to 2 to the 53rd exactly. */
    private static final long MAX_EXACT_DOUBLE = 1L << 53;
    private static final long MAX_SHORT = 1L << 15;
    /** Maximum tasks with rows of a group; with more, the final aggregate fails. So each may sum up to `MAX_EXACT_DOUBLE / MAX_TASKS`. */
    static final int MAX_TASKS = 1024;
    static final String ROUNDED_ERROR = "error('an average that Spark rounds differently')";
    /** Up to this absolute value, a sum above `MAX_EXACT_DOUBLE` needs at least 900 million rows, so a check only counts rows. */
    private static final long MAX_VALUE_TO_COUNT_ROWS = 10_000_000;

    private final String columns;
    private final String groupBy;

    NativePartialAggregate(BaseAggregateExec plan) throws Declined {
        Map<Object, Object> sqlById = new HashMap<>();
        StringBuilder groupByClause = new StringBuilder();
        for (Object expression : Catalyst.each(plan.groupingExpressions())) {
            NamedExpression group = (NamedExpression) expression;
            String sql = NativeSql.of((Expression) expression);
            sqlById.put(group.exprId().id(), sql);
            groupByClause.append(groupByClause.length() == 0 ? " GROUP BY " : ", ").append(sql);
        }
        for (AggregateExpression function : Catalyst.each(plan.aggregateExpressions())) {
            if (!function.mode().toString().equals("Partial") || function.isDistinct()) {
                throw new Declined("a distinct aggregate");
            }
            NativeTemplates.checkIncluded(function.aggregateFunction());
            List<?> buffers = Catalyst.each(function.aggregateFunction().inputAggBufferAttributes());
            List<?> sql = buffers(function.aggregateFunction(), buffers, filter(function));
            for (int i = 0; i < buffers.size(); i++) {
                sqlById.put(((AttributeReference) buffers.get(i)).exprId().id(), sql.get(i));
            }
        }
        StringBuilder results = new StringBuilder();
        for (NamedExpression result : Catalyst.each(plan.resultExpressions())) {
            Object sql = result instanceof AttributeReference ? sqlById.get(result.exprId().id()) : null;
            if (sql == null) {
                throw new Declined("an aggregate whose results are more than its groups and functions");
            }
            results.append(results.length() == 0 ? "" : ", ").append(sql).append(" AS c").append(result.exprId().id());
        }
        columns = results.length() == 0 ? "1 AS nothing" : results.toString();
        groupBy = groupByClause.toString();
    }

    String of(String rows) {
        return "SELECT " + columns + " FROM (" + rows + ")" + groupBy;
    }

    /** Returns the SQL of each buffer of an aggregate function; a final aggregate merges them after the exchange. */
    private static List<String> buffers(AggregateFunction function, List<?> buffers, String filter)
            throws Declined {
        String name = Catalyst.name(function);
        List<Object> types = new ArrayList<>();
        for (Object buffer : buffers) {
            types.add(NativeTypes.nameOf(((Expression) buffer).dataType()));
        }
        if (name.equals("Count") && types.size() == 1) {
            return Arrays.asList(count(function, filter));
        }
        if (NativeStatistics.isSupported(function)) {
            return NativeStatistics.buffers(function, buffers, filter);
        }
        if (function.children().size() != 1) {
            throw new Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        String sql = NativeSql.of(child);
        String type = NativeTypes.nameOf(child.dataType());
        if (NativeLogicalAggregate.SIMPLE_FUNCTIONS.containsKey(name)) {
            return Arrays.asList(NativeLogicalAggregate.SIMPLE_FUNCTIONS.get(name) + "(" + sql + ")" + filter);
        }
        if (!name.equals("Sum") && !name.equals("Average") || NumericTypes.overflowMode(function).equals("TRY")) {
            throw new Declined("aggregate " + name);
        }
        String count = "count(" + sql + ")" + filter;
        if (NumericTypes.isFloating(child.dataType())) {
            String sum = floatingSum("", sql, filter);
            return name.equals("Sum") ? Arrays.asList(sum) : Arrays.asList("coalesce(" + sum + ", 0)", count);
        }
        if (child.dataType() instanceof DecimalType && types.size() == 2) {
            boolean fits = NumericTypes.isSummedExactly(child.dataType());
            String sum = sum("", sql, filter, (String) types.get(0), fits ? null : NativeTypes.largestSum(child.dataType()));
            String sumOrZero = "coalesce(" + sum + ", " + NativeTypes.literal(BigDecimal.ZERO, ((Expression) buffers.get(0)).dataType()) + ")";
            return Arrays.asList(sumOrZero, name.equals("Sum") ? "(" + count + " = 0)" : count);
        }
        if (name.equals("Sum") && NumericTypes.isInteger(child.dataType()) && types.size() == 1) {
            return Arrays.asList(integerSum("", sql, filter, NumericTypes.sumFitsLong(child), NumericTypes.overflowMode(function)));
        }
        if (name.equals("Average") && NumericTypes.isInteger(child.dataType()) && types.size() == 2) {
            return Arrays.asList("coalesce(" + averagedSum("", sql, filter, child, MAX_TASKS) + ", 0)", count);
        }
        throw new Declined("aggregate " + name + " of " + type);
    }

    /** Returns the FILTER clause of an aggregate function, which follows the call; empty without filter. */
    static String filter(AggregateExpression function) throws Declined {
        return function.filter().isEmpty() ? "" : " FILTER (WHERE " + NativeSql.condition((Expression) (Object) function.filter().get()) + ")";
    }

    /** Returns the number of rows whose arguments are all not null. */
    static String count(AggregateFunction function, String filter) throws Declined {
        StringBuilder allNotNull = new StringBuilder();
        for (Expression argument : Catalyst.each(function.children())) {
            if (argument instanceof Literal && ((Literal) argument).value() != null) {
                continue;
            }
            allNotNull.append(allNotNull.length() == 0 ? "" : " AND ").append(NativeSql.condition(argument)).append(" IS NOT NULL");
        }
        return allNotNull.length() == 0 ? "count(*)" + filter : "count(CASE WHEN " + allNotNull + " THEN 1 END)" + filter;
    }

    /**
     * Returns a sum of numbers as a double.
     *
     * Both engines round the sum after each addition, so it depends on the order of the rows and of partial sums.
     *
     * @param distinct `DISTINCT ` or empty, as in the methods below
     */
    static String floatingSum(String distinct, String sql, String filter) {
        return distinct.isEmpty() ? "sum(CAST(" + sql + " AS DOUBLE))" + filter : "CAST(sum(" + distinct + sql + ")" + filter + " AS DOUBLE)";
    }

    /**
     * Returns a sum of numbers for an average, as a double.
     *
     * Spark adds doubles. If the sum of the absolute values (2 * positive - all) of integers exceeds 2 to the 53rd, it
     * rounds the sum after each row. The rounding errors are small compared with the absolute values, so it is an error if
     * the sum is less than half of these. Sums of many tasks must not cancel out either: all that may be negative or
     * cancel out in a task must be less than a quarter of the bound, and a sum that may be rounded exceeds half of it. The
     * average of the unscaled integers of decimals becomes a decimal, so it must be exact: it is an error if the sum may
     * be rounded.
     *
     * @param tasks the maximum number of tasks whose sums are added up; each may reach its share of the bound
     */
    static String averagedSum(String distinct, String sql, String filter, Expression child, int tasks) {
        if (NumericTypes.isFloating(child.dataType())) {
            return floatingSum(distinct, sql, filter);
        }
        String sum = "sum(" + distinct + sql + ")" + filter;
        if (Catalyst.type(child).matches("tinyint|smallint")) {
            String tooMany = "count(" + distinct + sql + ")" + filter + " > " + MAX_EXACT_DOUBLE / tasks / MAX_SHORT;
            return "CASE WHEN " + tooMany + " THEN " + ROUNDED_ERROR + " ELSE CAST(" + sum + " AS DOUBLE) END";
        }
        String absolute = "2 * sum(" + distinct + "greatest(" + sql + ", 0))" + filter + " - " + sum;
        if (!Catalyst.name(child).equals("UnscaledValue")) {
            sum = floatingSum(distinct, sql, filter);
            if (distinct.isEmpty()) { // exact below the bound, and faster than sums of integers
                absolute = "sum(abs(CAST(" + sql + " AS DOUBLE)))" + filter;
            }
            String mayCancel = tasks == 1 ? absolute + " >= " + MAX_EXACT_DOUBLE + " AND 2 * abs(" + sum + ") < " + absolute
                    : absolute + " >= " + MAX_EXACT_DOUBLE / tasks / 4 + " AND 2 * " + sum + " < " + absolute;
            return "CASE WHEN " + mayCancel + " THEN error('an average of large numbers that cancel out') ELSE " + sum + " END";
        }
        String mayBeRounded = absolute + " > " + MAX_EXACT_DOUBLE / tasks;
        long maxAbsolute = (long) Math.pow(10, ((DecimalType) Catalyst.first(child).dataType()).precision());
        if (tasks == 1 && maxAbsolute <= MAX_VALUE_TO_COUNT_ROWS) {
            mayBeRounded = "count(" + distinct + sql + ")" + filter + " > " + MAX_EXACT_DOUBLE / maxAbsolute;
        }
        return "CAST(CASE WHEN " + mayBeRounded + " THEN " + ROUNDED_ERROR + " ELSE " + sum + " END AS DOUBLE)";
    }

    /** Returns a sum of decimals, an error if the sum of their absolute values exceeds the bound; null means no bound. */
    static String sum(String distinct, String sql, String filter, String type, String bound) {
        String sum = "sum(" + distinct + sql + ")" + filter;
        if (bound != null) {
            sum = "CASE WHEN sum(abs(" + sql + "))" + filter + " > " + bound + " THEN error('a sum that may not fit') ELSE " + sum + " END";
        }
        return "CAST(" + sum + " AS " + type + ")";
    }

    /**
     * Returns a sum of integers as a bigint.
     *
     * @param isSmall whether no realistic number of rows can overflow a bigint
     * @param mode what Spark does on overflow: it wraps around (LEGACY) or fails. A failure may depend on the order of the
     *     rows, unless the sum of the positive numbers and the sum of the negative numbers both fit: then no order fails.
     */
    static String integerSum(String distinct, String sql, String filter, boolean isSmall, String mode) {
        String sum = "sum(" + distinct + sql + ")" + filter;
        if (isSmall) {
            return "CAST(" + sum + " AS BIGINT)";
        }
        if (mode.equals("LEGACY")) {
            return NativeTypes.wrapped(sum);
        }
        String positive = "sum(" + distinct + "greatest(" + sql + ", 0))" + filter;
        return "CAST(CASE WHEN " + positive + " > " + MAX_LONG + " OR " + positive + " - " + sum + " > " + NativeTypes.TWO_TO_63
                + " THEN error('a sum that may not fit') ELSE " + sum + " END AS BIGINT)";
    }
}
