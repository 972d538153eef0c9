package penstock.duckdb;

import java.math.BigDecimal;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/**
 * Quotients and unscaled integers of decimals in DuckDB's SQL. DuckDB has no exact division of decimals, so their unscaled integers are divided.
 *
 * Spark rounds a quotient half up to 38 digits after the decimal point, and then to the scale of its type. The result
 * equals rounding once if the divisor has few enough digits: a quotient that is not a tie is then farther from a tie than
 * the error of the first rounding.
 */
final class NativeDecimals {
    /** Integers below this bound are computed as BIGINT, which is much faster. */
    private static final BigDecimal BIGINT_BOUND = BigDecimal.TEN.pow(18);

    /** Returns a conversion between decimals and unscaled integers of 64 bits; null for other expressions. */
    static String conversion(Expression expression) throws Declined {
        String name = Catalyst.name(expression);
        if (name.equals("UnscaledValue")) {
            DecimalType type = (DecimalType) Catalyst.first(expression).dataType();
            String decimal = NativeSql.of(Catalyst.first(expression));
            if (type.precision() + type.scale() > 18) { // DuckDB computes a product of 64-bit decimals in 64 bits
                decimal = "CAST(" + decimal + " AS DECIMAL(" + NumericTypes.sumType(type).precision() + "," + type.scale() + "))";
            }
            return "CAST(" + unscaled(decimal, type) + " AS BIGINT)";
        }
        return name.equals("MakeDecimal") ? ofUnscaled(NativeSql.of(Catalyst.first(expression)), (DecimalType) expression.dataType()) : null;
    }

    /** Returns the unscaled integer of a decimal. */
    static String unscaled(String sql, DecimalType type) {
        int width = type.scale() + 1;
        if (type.precision() + width > DecimalType.MAX_PRECISION()) { // the product would overflow
            return "CAST(replace(CAST(" + sql + " AS VARCHAR), '.', '') AS HUGEINT)";
        }
        return "CAST((" + sql + " * CAST(" + BigDecimal.TEN.pow(type.scale()) + " AS DECIMAL(" + width + ",0))) AS HUGEINT)";
    }

    /** Returns the decimal of an unscaled integer. */
    static String ofUnscaled(String sql, DecimalType type) throws Declined {
        if (type.precision() + type.scale() + 1 > DecimalType.MAX_PRECISION()) {
            String unscaled = "lpad(CAST(abs(" + sql + ") AS VARCHAR), " + (type.precision() + 1) + ", '0')";
            int whole = type.precision() + 1 - type.scale();
            return "CAST(CASE WHEN " + sql + " < 0 THEN '-' ELSE '' END || substring(" + unscaled + ", 1, " + whole + ") || '.' || substring("
                    + unscaled + ", " + (whole + 1) + ") AS " + NativeTypes.nameOf(type) + ")";
        }
        String unit = BigDecimal.ONE.movePointLeft(type.scale()).toPlainString();
        return "CAST(CAST(" + sql + " AS DECIMAL(" + type.precision() + ",0)) * CAST('" + unit + "' AS DECIMAL(" + (type.scale() + 1) + ","
                + type.scale() + ")) AS " + NativeTypes.nameOf(type) + ")";
    }

    /** Returns the quotient of two decimals: `ifZero` if the divisor is zero, and else null if an operand is null. */
    static String quotient(String dividend, DecimalType dividendType, String divisor, DecimalType divisorType, DecimalType resultType, String ifZero)
            throws Declined {
        String unscaledDivisor = unscaled(divisor, divisorType);
        return quotient(unscaled(dividend, dividendType), unscaledDivisor, resultType.scale() + divisorType.scale() - dividendType.scale(), resultType, ifZero,
                DecimalType.MAX_SCALE() - 1 - resultType.scale() - Math.max(dividendType.scale() - divisorType.scale(), 0));
    }

    /** Returns (unscaled * 10^exponent) / unscaledDivisor; an error if the divisor has more than `maxDivisorDigits`. */
    private static String quotient(String unscaled, String unscaledDivisor, int exponent, DecimalType resultType, String ifZero, int maxDivisorDigits)
            throws Declined {
        if (exponent < 0 || maxDivisorDigits < 1) {
            throw new Declined("a quotient of decimals that is rounded twice");
        }
        BigDecimal factor = BigDecimal.TEN.pow(exponent);
        String fitsBigint = "abs(" + unscaled + ") < " + BIGINT_BOUND.divideToIntegralValue(factor) + " AND abs(" + unscaledDivisor + ") < " + BIGINT_BOUND;
        String signed = "(CASE WHEN " + fitsBigint + " THEN " + rounded(unscaled, unscaledDivisor, factor, "BIGINT") + " ELSE "
                + rounded(unscaled, unscaledDivisor, factor, "HUGEINT") + " END)";
        return "(CASE WHEN " + unscaledDivisor + " = 0 THEN " + ifZero + " WHEN abs(" + unscaledDivisor + ") >= CAST(" + BigDecimal.TEN.pow(maxDivisorDigits)
                + " AS HUGEINT) THEN error('a quotient that may be rounded twice') ELSE " + ofUnscaled(signed, resultType) + " END)";
    }

    /** Returns a quotient of integers, rounded half up and computed in an integer type. */
    private static String rounded(String unscaled, String unscaledDivisor, BigDecimal factor, String type) {
        String dividend = "(CAST(abs(" + unscaled + ") AS " + type + ") * CAST(" + factor + " AS " + type + "))";
        String divisor = "CAST(abs(" + unscaledDivisor + ") AS " + type + ")";
        String remainder = "(" + dividend + " % " + divisor + ")";
        String rounded = "(" + dividend + " // " + divisor + " + CASE WHEN " + remainder + " >= " + divisor + " - " + remainder + " THEN 1 ELSE 0 END)";
        return "(CASE WHEN (" + unscaled + " < 0) <> (" + unscaledDivisor + " < 0) THEN -" + rounded + " ELSE " + rounded + " END)";
    }

    /** Returns the average of decimals from their sum and count. */
    static String mean(String sum, DecimalType sumType, String count, DecimalType resultType) throws Declined {
        String nullResult = "CAST(NULL AS " + NativeTypes.nameOf(resultType) + ")";
        return quotient(unscaled(sum, sumType), "CAST(" + count + " AS HUGEINT)", resultType.scale() - sumType.scale(), resultType, nullResult,
                DecimalType.MAX_SCALE() - 1 - resultType.scale() - sumType.scale());
    }
}
