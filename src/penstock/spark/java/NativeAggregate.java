package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.types.DecimalType;

/** What a task sums up of its rows before they are exchanged, in the SQL of DuckDB: the buffers of Spark's functions. */
final class NativeAggregate {
    private static final String LONGEST = "9223372036854775807";
    /** Doubles have each whole number up to 2 to the 53rd. */
    private static final long LARGEST_WHOLE_DOUBLE = 1L << 53;
    /** As many tasks may sum up numbers of one group before their total passes it, too. */
    static final int MOST_TASKS = 1024;
    static final String ROUNDED = "error('an average that Spark rounds otherwise')";
    /** Numbers up to this pass `LARGEST_WHOLE_DOUBLE` only in groups of 900 million rows, so to count is enough. */
    private static final long FEW_DIGITS = 10_000_000;

    private final String columns;
    private final String groups;

    NativeAggregate(BaseAggregateExec plan) throws NativeSql.Declined {
        Map<Object, Object> values = new HashMap<>();
        StringBuilder grouped = new StringBuilder();
        for (Object each : Catalyst.each(plan.groupingExpressions())) {
            NamedExpression group = (NamedExpression) each;
            String type = NativeTypes.nameOf(((Expression) each).dataType());
            if (type.equals("FLOAT") || type.equals("DOUBLE")) {
                throw new NativeSql.Declined("groups by floating-point numbers");
            }
            String sql = NativeSql.of((Expression) each);
            values.put(group.exprId().id(), sql);
            grouped.append(grouped.length() == 0 ? " GROUP BY " : ", ").append(sql);
        }
        for (Object each : Catalyst.each(plan.aggregateExpressions())) {
            AggregateExpression one = (AggregateExpression) each;
            if (!one.mode().toString().equals("Partial") || one.isDistinct()) {
                throw new NativeSql.Declined("a distinct aggregate");
            }
            String only = one.filter().isEmpty() ? "" : " FILTER (WHERE " + NativeSql.condition((Expression) (Object) one.filter().get()) + ")";
            List<?> buffers = Catalyst.each(one.aggregateFunction().inputAggBufferAttributes());
            List<?> sql = buffers(one.aggregateFunction(), buffers, only);
            for (int i = 0; i < buffers.size(); i++) {
                values.put(((AttributeReference) buffers.get(i)).exprId().id(), sql.get(i));
            }
        }
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(plan.resultExpressions())) {
            NamedExpression result = (NamedExpression) each;
            Object sql = each instanceof AttributeReference ? values.get(result.exprId().id()) : null;
            if (sql == null) {
                throw new NativeSql.Declined("an aggregate that gives more than its parts");
            }
            found.append(found.length() == 0 ? "" : ", ").append(sql).append(" AS c").append(result.exprId().id());
        }
        columns = found.length() == 0 ? "1 AS nothing" : found.toString();
        groups = grouped.toString();
    }

    /** Returns what is summed up of the rows of a query. */
    String of(String rows) {
        return "SELECT " + columns + " FROM (" + rows + ")" + groups;
    }

    /** Returns the parts of an aggregate function, of which Spark makes its result after the exchange. */
    private static List<String> buffers(AggregateFunction function, List<?> buffers, String only)
            throws NativeSql.Declined {
        String name = Catalyst.name(function);
        List<Object> types = new ArrayList<>();
        for (Object buffer : buffers) {
            types.add(NativeTypes.nameOf(((Expression) buffer).dataType()));
        }
        if (name.equals("Count") && types.size() == 1) {
            StringBuilder known = new StringBuilder();
            for (Object part : Catalyst.each(function.children())) {
                known.append(known.length() == 0 ? "" : " AND ").append(NativeSql.condition((Expression) part)).append(" IS NOT NULL");
            }
            return Arrays.asList("count(CASE WHEN " + known + " THEN 1 END)" + only);
        }
        if (function.children().size() != 1) {
            throw new NativeSql.Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        String sql = NativeSql.of(child);
        String type = NativeTypes.nameOf(child.dataType());
        boolean floats = type.equals("FLOAT") || type.equals("DOUBLE");
        if ((name.equals("Min") || name.equals("Max")) && types.size() == 1 && !floats) {
            return Arrays.asList(name.toLowerCase(Locale.ROOT) + "(" + sql + ")" + only);
        }
        if (!name.equals("Sum") && !name.equals("Average") || NativeTypes.mode(function).equals("TRY")) {
            throw new NativeSql.Declined("aggregate " + name);
        }
        String count = "count(" + sql + ")" + only;
        if (child.dataType() instanceof DecimalType && types.size() == 2) {
            boolean fits = NativeTypes.isSummedExactly(child.dataType());
            String sum = sum("", sql, only, (String) types.get(0), fits ? null : NativeTypes.largest(child.dataType()));
            String known = "coalesce(" + sum + ", " + NativeTypes.zero(((Expression) buffers.get(0)).dataType()) + ")";
            return Arrays.asList(known, name.equals("Sum") ? "(" + count + " = 0)" : count);
        }
        if (name.equals("Sum") && NativeTypes.isWhole(child.dataType()) && types.size() == 1) {
            return Arrays.asList(wholeSum("", sql, only, NativeTypes.isSmall(child), NativeTypes.mode(function)));
        }
        if (name.equals("Average") && NativeTypes.isWhole(child.dataType()) && types.size() == 2) {
            return Arrays.asList("coalesce(" + doubleSum("", sql, only, child, MOST_TASKS) + ", 0)", count);
        }
        throw new NativeSql.Declined("aggregate " + name + " of " + type);
    }

    /**
     * Returns a sum of whole numbers for an average, as a double.
     *
     * Spark adds doubles: above 2 to the 53rd its sum is rounded, once for each row, and depends on the order of the
     * rows. A condition, a cast or a decimal shows that. So the sum is an error where the absolute values pass the bound.
     *
     * @param tasks how many such sums are added up at most
     */
    static String doubleSum(String distinct, String sql, String only, Expression child, int tasks) {
        String sum = "sum(" + distinct + sql + ")" + only;
        long largest = largestNumber(child);
        String rounded = tasks == 1 && largest <= FEW_DIGITS
                ? "count(" + distinct + sql + ")" + only + " > " + LARGEST_WHOLE_DOUBLE / largest
                : "2 * sum(" + distinct + "greatest(" + sql + ", 0))" + only + " - " + sum + " > " + LARGEST_WHOLE_DOUBLE / tasks;
        return "CAST(CASE WHEN " + rounded + " THEN " + ROUNDED + " ELSE " + sum + " END AS DOUBLE)";
    }

    /** Returns the largest absolute value that the type of a whole number has. */
    private static long largestNumber(Expression child) {
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return (long) Math.pow(10, ((DecimalType) Catalyst.first(child).dataType()).precision());
        }
        int bits = 8 * child.dataType().defaultSize();
        return bits == 64 ? Long.MAX_VALUE : 1L << bits - 1;
    }

    /** Returns a sum of decimals, or an error if the sum of their absolute values exceeds the bound; null is no bound. */
    static String sum(String distinct, String sql, String only, String type, String bound) {
        String sum = "sum(" + distinct + sql + ")" + only;
        if (bound != null) {
            sum = "CASE WHEN sum(abs(" + sql + "))" + only + " > " + bound + " THEN error('a sum that may not fit') ELSE " + sum + " END";
        }
        return "CAST(" + sum + " AS " + type + ")";
    }

    /**
     * Returns a sum of whole numbers as a bigint.
     *
     * @param isSmall whether no number of rows that exists can exceed a bigint
     * @param mode what Spark does where the sum does not fit: it wraps around (LEGACY), or fails. Whether it fails may
     *     depend on the order of the rows, unless the positive numbers alone fit, and the negative ones alone: then no
     *     order fails.
     */
    static String wholeSum(String distinct, String sql, String only, boolean isSmall, String mode) {
        String sum = "sum(" + distinct + sql + ")" + only;
        if (isSmall) {
            return "CAST(" + sum + " AS BIGINT)";
        }
        if (mode.equals("LEGACY")) {
            return NativeTypes.wrapped(sum);
        }
        String positive = "sum(" + distinct + "greatest(" + sql + ", 0))" + only;
        return "CAST(CASE WHEN " + positive + " > " + LONGEST + " OR " + positive + " - " + sum + " > " + NativeTypes.TWO_TO_63
                + " THEN error('a sum that may not fit') ELSE " + sum + " END AS BIGINT)";
    }
}
