package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.spark.SparkBuildInfo;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;

import scala.Product;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/**
 * Variances, covariances, correlations and percentiles in DuckDB's SQL.
 *
 * Both engines update a mean and a sum of squared differences (Welford's algorithm), and merge those of tasks or threads.
 * The results differ by rounding only. DuckDB fails on numbers that are not finite, so it never gets them.
 */
final class NativeStatistics {
    private static final Map<String, Object> VARIANCES = Catalyst.pairs("StddevPop stddev_pop StddevSamp stddev_samp VariancePop var_pop VarianceSamp var_samp");
    private static final Map<String, Object> COVARIANCES = Catalyst.pairs("CovPopulation covar_pop CovSample covar_samp Corr corr");
    /** Before Spark 4.3, percentiles are interpolated by another formula, and correlations merged by another. */
    private static final boolean IS_OLD_SPARK = SparkBuildInfo.spark_version().matches("4\\.[0-2]\\..*");
    /** The quantile of the upper of two middle values, of up to 2 to the 39th values: 0.5 plus 2 to the power of -40. */
    private static final String JUST_ABOVE_HALF = "(0.5::DOUBLE + 1.0 / " + (1L << 40) + ")";
    private static final String NAN = "CAST('NaN' AS DOUBLE)";
    private static final String NOT_FINITE_ERROR = "error('statistics of numbers that are not finite')";

    static boolean isSupported(AggregateFunction function) {
        String name = Catalyst.name(function);
        return VARIANCES.containsKey(name) || COVARIANCES.containsKey(name) || name.equals("Percentile");
    }

    /** Returns a complete aggregate function; `distinct` and `suffix` as in `NativeLogicalAggregate.of`. */
    static String of(AggregateFunction function, String distinct, String suffix) throws Declined {
        String name = Catalyst.name(function);
        if (name.equals("Percentile")) {
            return percentile(function, distinct, suffix);
        }
        checkNullForSingleRows(function);
        String x = NativeSql.of(Catalyst.first(function));
        if (VARIANCES.containsKey(name)) {
            String count = "count(" + distinct + x + ")" + suffix;
            String sample = name.endsWith("Samp") ? " WHEN " + count + " < 2 THEN NULL" : "";
            return "CASE" + sample + " WHEN count(" + distinct + finite(x) + ")" + suffix + " < " + count + " THEN " + NAN + " ELSE "
                    + VARIANCES.get(name) + "(" + distinct + finite(x) + ")" + suffix + " END";
        }
        if (!distinct.isEmpty()) {
            throw new Declined("a distinct aggregate");
        }
        Pairs pairs = new Pairs(x, NativeSql.of(Catalyst.last(function)), suffix);
        String value = name.equals("Corr") ? correlation(pairs) : pairs.call((String) COVARIANCES.get(name));
        return "CASE WHEN " + pairs.count() + " < " + (name.equals("CovPopulation") ? 1 : 2) + " THEN NULL WHEN " + pairs.areNotFinite() + " THEN "
                + NOT_FINITE_ERROR + " ELSE " + value + " END";
    }

    /** Returns Spark's formula, whose product may overflow. Before Spark 4.3, a constant column may not be zero after merges. */
    private static String correlation(Pairs pairs) {
        String product = "(" + pairs.call("regr_sxx") + " * " + pairs.call("regr_syy") + ")";
        return "CASE WHEN " + product + " = 0 OR " + pairs.isConstant(pairs.x) + " OR " + pairs.isConstant(pairs.y) + " THEN " + (IS_OLD_SPARK ? NOT_FINITE_ERROR : "NULL")
                + " ELSE " + pairs.call("covar_pop") + " * " + pairs.count() + " / sqrt(" + product + ") END";
    }

    /** Returns the buffers of a partial aggregate, in the order of Spark's `buffers`. */
    static List<String> buffers(AggregateFunction function, List<?> buffers, String filter) throws Declined {
        checkNullForSingleRows(function);
        List<String> sql = new ArrayList<>();
        for (Object buffer : buffers) {
            String name = ((AttributeReference) buffer).name();
            String x = NativeSql.of(Catalyst.first(function));
            sql.add(function.children().size() == 1 ? momentBuffer(name, x, filter)
                    : pairBuffer(name, new Pairs(x, NativeSql.of(Catalyst.last(function)), filter)));
        }
        return sql;
    }

    private static String momentBuffer(String name, String x, String filter) throws Declined {
        String count = "count(" + x + ")" + filter;
        String finiteCount = "count(" + finite(x) + ")" + filter;
        String value;
        if (name.equals("n")) {
            return "CAST(" + count + " AS DOUBLE)";
        } else if (name.equals("avg")) {
            String sum = "sum(" + finite(x) + ")" + filter;
            value = "CASE WHEN isinf(" + sum + ") THEN " + NOT_FINITE_ERROR + " ELSE " + sum + " / " + finiteCount + " END";
        } else if (name.equals("m2")) {
            value = "var_pop(" + finite(x) + ")" + filter + " * " + finiteCount;
        } else {
            throw new Declined("a moment " + name);
        }
        return "CASE WHEN " + finiteCount + " < " + count + " THEN " + NAN + " ELSE coalesce(" + value + ", 0) END";
    }

    private static String pairBuffer(String name, Pairs pairs) throws Declined {
        Map<String, Object> functions = Catalyst.pairs("xAvg regr_avgx yAvg regr_avgy xMk regr_sxx yMk regr_syy ck covar_pop");
        if (name.equals("n")) {
            return "CAST(" + pairs.count() + " AS DOUBLE)";
        }
        if (!functions.containsKey(name)) {
            throw new Declined("a moment " + name);
        }
        String value = pairs.call((String) functions.get(name)) + (name.equals("ck") ? " * " + pairs.count() : "");
        return "CASE WHEN " + pairs.areNotFinite() + " OR isinf(" + value + ") THEN " + NOT_FINITE_ERROR + " ELSE coalesce(" + value + ", 0) END";
    }

    /** Declines the results of Spark 2 (NaN instead of null for a single row), which a setting restores. */
    private static void checkNullForSingleRows(AggregateFunction function) throws Declined {
        for (int i = 0; i < ((Product) function).productArity(); i++) {
            if (Boolean.FALSE.equals(((Product) function).productElement(i))) {
                throw new Declined("statistics that are NaN for a single row");
            }
        }
        if (Catalyst.name(function).equals("Percentile")) { // its buffer is a map
            throw new Declined("aggregate Percentile");
        }
    }

    private static String finite(String number) {
        return "CASE WHEN isfinite(" + number + ") THEN " + number + " END";
    }

    /** Returns an interpolated percentile. Nulls are ignored, and come last in the list of all values. */
    private static String percentile(AggregateFunction function, String distinct, String suffix) throws Declined {
        Expression child = Catalyst.first(function);
        List<?> arguments = Catalyst.each(function.children());
        Object percentage = arguments.get(1) instanceof Literal ? ((Literal) arguments.get(1)).value() : null;
        Object frequency = arguments.get(2) instanceof Literal ? ((Literal) arguments.get(2)).value() : null;
        boolean isReversed = false;
        for (int i = 0; i < ((Product) function).productArity(); i++) {
            isReversed |= Boolean.TRUE.equals(((Product) function).productElement(i));
        }
        boolean isNumber = NumericTypes.isInteger(child.dataType()) || NumericTypes.isFloating(child.dataType());
        if (!(percentage instanceof Double) || !String.valueOf(frequency).equals("1") || isReversed || !isNumber || !distinct.isEmpty() || suffix.startsWith(" OVER")) {
            throw new Declined("a percentile that is not a constant, or not of numbers");
        }
        String x = "CAST(" + NativeSql.of(child) + " AS DOUBLE)";
        String count = "count(" + x + ")" + suffix;
        if (((Double) percentage).doubleValue() == 0.5) { // faster than a sorted list
            String middle = "(quantile_disc(" + x + ", [0.5::DOUBLE, " + JUST_ABOVE_HALF + "])" + suffix + ")";
            return interpolated(middle + "[1]", middle + "[2]", "0.5");
        }
        String position = "(CAST(" + count + " - 1 AS DOUBLE) * CAST('" + percentage + "' AS DOUBLE))";
        String sorted = "list(" + x + " ORDER BY " + x + " ASC NULLS LAST)" + suffix;
        String lower = "floor(" + position + ")";
        return "CASE WHEN " + count + " = 0 THEN NULL ELSE " + interpolated("(" + sorted + ")[CAST(" + lower + " AS BIGINT) + 1]",
                "(" + sorted + ")[CAST(ceil(" + position + ") AS BIGINT) + 1]", "(" + position + " - " + lower + ")") + " END";
    }

    /** Returns a value between two others, by the formula of this release of Spark. */
    private static String interpolated(String low, String high, String weight) {
        String value = IS_OLD_SPARK ? "(1 - " + weight + ") * " + low + " + " + weight + " * " + high : low + " + " + weight + " * (" + high + " - " + low + ")";
        return "CASE WHEN " + low + " = " + high + " THEN " + low + " ELSE " + value + " END";
    }

    /** The arguments of a function of two columns: rows in which one is null do not count. */
    private static final class Pairs {
        /** The columns, null in rows with numbers that are not finite. */
        final String x;
        final String y;
        private final String bothNotNull;
        private final String suffix;

        Pairs(String x, String y, String suffix) {
            String bothFinite = "CASE WHEN isfinite(" + x + ") AND isfinite(" + y + ") THEN ";
            this.x = bothFinite + x + " END";
            this.y = bothFinite + y + " END";
            bothNotNull = "CASE WHEN " + x + " IS NOT NULL AND " + y + " IS NOT NULL THEN 1 END";
            this.suffix = suffix;
        }

        String count() {
            return "count(" + bothNotNull + ")" + suffix;
        }

        String areNotFinite() {
            return "count(" + x + ")" + suffix + " < " + count();
        }

        String isConstant(String column) {
            return "min(" + column + ")" + suffix + " = max(" + column + ")" + suffix;
        }

        /** Returns a call; the dependent variable is DuckDB's first argument. */
        String call(String function) {
            return function + "(" + y + ", " + x + ")" + suffix;
        }
    }
}
