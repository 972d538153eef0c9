package penstock;

import java.math.BigDecimal;

import org.apache.spark.sql.types.DecimalType;

/**
 * Quotients of decimals in the SQL of DuckDB, which has none that are exact: those of their digits, as whole numbers.
 *
 * Spark rounds a quotient half up to 38 digits after the point, and then to those of its type. That is the same as to
 * round it once, where the divisor has few enough digits: a quotient that is no tie is further from one than the first
 * rounding moves it.
 */
final class NativeDecimals {
    /** Whole numbers below this one are computed as long integers, which is far faster. */
    private static final BigDecimal SHORT = BigDecimal.TEN.pow(18);

    private NativeDecimals() {
    }

    /** Returns the digits of a decimal, as a whole number. */
    static String digits(String sql, DecimalType type) {
        int width = type.scale() + 1;
        if (type.precision() + width > DecimalType.MAX_PRECISION()) { // a product would not fit
            return "CAST(replace(CAST(" + sql + " AS VARCHAR), '.', '') AS HUGEINT)";
        }
        return "CAST((" + sql + " * CAST(" + BigDecimal.TEN.pow(type.scale()) + " AS DECIMAL(" + width + ",0))) AS HUGEINT)";
    }

    /** Returns a decimal with the digits of a whole number. */
    static String ofDigits(String sql, DecimalType type) throws NativeSql.Declined {
        if (type.precision() + type.scale() + 1 > DecimalType.MAX_PRECISION()) {
            String digits = "lpad(CAST(abs(" + sql + ") AS VARCHAR), " + (type.precision() + 1) + ", '0')";
            int whole = type.precision() + 1 - type.scale();
            return "CAST(CASE WHEN " + sql + " < 0 THEN '-' ELSE '' END || substring(" + digits + ", 1, " + whole + ") || '.' || substring("
                    + digits + ", " + (whole + 1) + ") AS " + NativeTypes.nameOf(type) + ")";
        }
        String unit = BigDecimal.ONE.movePointLeft(type.scale()).toPlainString();
        return "CAST(CAST(" + sql + " AS DECIMAL(" + type.precision() + ",0)) * CAST('" + unit + "' AS DECIMAL(" + (type.scale() + 1) + ","
                + type.scale() + ")) AS " + NativeTypes.nameOf(type) + ")";
    }

    /**
     * Returns the quotient of two decimals, null if one of them is null.
     *
     * @param zero what it is if the divisor is zero
     */
    static String quotient(String dividend, DecimalType ofDividend, String divisor, DecimalType ofDivisor, DecimalType wanted, String zero)
            throws NativeSql.Declined {
        String by = digits(divisor, ofDivisor);
        return quotient(digits(dividend, ofDividend), by, wanted.scale() + ofDivisor.scale() - ofDividend.scale(), wanted, zero,
                DecimalType.MAX_SCALE() - 1 - wanted.scale() - Math.max(ofDividend.scale() - ofDivisor.scale(), 0));
    }

    /** Returns the quotient of the digits of a decimal, with so many zeros more, and a whole number. */
    private static String quotient(String digits, String by, int zeros, DecimalType wanted, String zero, int most)
            throws NativeSql.Declined {
        if (zeros < 0 || most < 1) {
            throw new NativeSql.Declined("a quotient of decimals that is rounded twice");
        }
        BigDecimal times = BigDecimal.TEN.pow(zeros);
        String isShort = "abs(" + digits + ") < " + SHORT.divideToIntegralValue(times) + " AND abs(" + by + ") < " + SHORT;
        String signed = "(CASE WHEN " + isShort + " THEN " + rounded(digits, by, times, "BIGINT") + " ELSE "
                + rounded(digits, by, times, "HUGEINT") + " END)";
        return "(CASE WHEN " + by + " = 0 THEN " + zero + " WHEN abs(" + by + ") >= CAST(" + BigDecimal.TEN.pow(most)
                + " AS HUGEINT) THEN error('a quotient that may be rounded twice') ELSE " + ofDigits(signed, wanted) + " END)";
    }

    /** Returns a quotient of whole numbers, rounded half up; it is computed in a type that has room for it. */
    private static String rounded(String digits, String by, BigDecimal times, String type) {
        String whole = "(CAST(abs(" + digits + ") AS " + type + ") * CAST(" + times + " AS " + type + "))";
        String divisor = "CAST(abs(" + by + ") AS " + type + ")";
        String rest = "(" + whole + " % " + divisor + ")";
        String rounded = "(" + whole + " // " + divisor + " + CASE WHEN " + rest + " >= " + divisor + " - " + rest + " THEN 1 ELSE 0 END)";
        return "(CASE WHEN (" + digits + " < 0) <> (" + by + " < 0) THEN -" + rounded + " ELSE " + rounded + " END)";
    }

    /** Returns the mean of decimals, of their sum and number. */
    static String mean(String sum, DecimalType ofSum, String count, DecimalType wanted) throws NativeSql.Declined {
        String none = "CAST(NULL AS " + NativeTypes.nameOf(wanted) + ")";
        return quotient(digits(sum, ofSum), "CAST(" + count + " AS HUGEINT)", wanted.scale() - ofSum.scale(), wanted, none,
                DecimalType.MAX_SCALE() - 1 - wanted.scale() - ofSum.scale());
    }
}
