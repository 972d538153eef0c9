package penstock.duckdb;

import java.math.BigDecimal;

import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.NumericTypes;

/** Casts in DuckDB's SQL: values that do not fit the target type are errors; see `NativeSql`. */
final class NativeCasts {
    private static final int[] INTEGER_DIGITS = {3, 5, 10, 19}; // in the order of `NumericTypes.INTEGERS`
    /** The number of digits up to which Java and DuckDB round the text of a double to the same decimal; see `numbers.py`. */
    private static final int MAX_DOUBLE_DIGITS = 14;
    /** The maximum scale of decimals that doubles are cast to: a double has about 15 digits. */
    private static final int MAX_DOUBLE_SCALE = 15;

    static String of(Cast cast, String sql) throws Declined {
        DataType from = cast.child().dataType();
        DataType to = cast.dataType();
        String type = NativeTypes.nameOf(to);
        boolean isTry = NumericTypes.overflowMode(cast).equals("TRY");
        if (to instanceof DecimalType && !isTry) {
            DecimalType decimal = (DecimalType) to;
            int integerDigits = decimal.precision() - decimal.scale();
            int digits = digits(from);
            if (from.catalogString().equals("double") && decimal.scale() <= MAX_DOUBLE_SCALE) { // Spark rounds the text of the double
                String text = "CAST(" + sql + " AS VARCHAR)";
                String isRoundedDifferently = "contains(" + text + ", 'e') OR " + isNearTie("abs(" + sql + ")", decimal.scale());
                return narrowed(text, isRoundedDifferently + " THEN error('a number that is rounded differently')", type);
            }
            if (digits > integerDigits) {
                return narrowed(sql, "abs(" + sql + ") >= " + BigDecimal.TEN.pow(integerDigits) + " THEN error('a number that does not fit')", type);
            }
            if (from instanceof DecimalType && decimal.scale() < ((DecimalType) from).scale()) { // rounds half up, like Spark
                return narrowed(sql, sql + " IS NULL THEN NULL", type);
            }
        }
        if (!fits(from, to)) {
            throw new Declined("a cast of " + from.catalogString() + " to " + to.catalogString());
        }
        return "CAST(" + sql + " AS " + type + ")";
    }

    /**
     * Whether Java and DuckDB may round the text of a positive double to different decimals.
     *
     * Each text differs from the double by at most half the distance of doubles, so both are rounded to the same decimal
     * unless a tie is that close. The error of the product with a power of ten is at most as large again. Both write a tie
     * of up to 15 digits exactly.
     */
    private static String isNearTie(String sql, int scale) {
        String scaled = "(" + sql + " * 1e" + scale + "::DOUBLE)";
        return sql + " >= 1e" + (MAX_DOUBLE_DIGITS - scale) + "::DOUBLE AND abs(" + scaled + " - floor(" + scaled + ") - 0.5::DOUBLE) <= " + scaled
                + " * 2.3e-16::DOUBLE";
    }

    /** Returns the maximum digits of an integer or decimal before the decimal point, 0 for other types. */
    private static int digits(DataType type) {
        if (type instanceof DecimalType) {
            return ((DecimalType) type).precision() - ((DecimalType) type).scale();
        }
        int index = NumericTypes.INTEGERS.indexOf(type.catalogString());
        return index < 0 ? 0 : INTEGER_DIGITS[index];
    }

    /** Returns a cast in a CASE after `branch`: DuckDB would rewrite CAST(x AS a narrower type) < 9 to x < 9. */
    private static String narrowed(String sql, String branch, String type) {
        return "(CASE WHEN " + branch + " ELSE CAST(" + sql + " AS " + type + ") END)";
    }

    /** Whether every value of a type fits another type without rounding. */
    private static boolean fits(DataType from, DataType to) {
        String source = from.catalogString();
        String target = to.catalogString();
        if (source.equals(target)) {
            return true;
        }
        if (to instanceof DecimalType) {
            DecimalType type = (DecimalType) to;
            boolean keepsDigits = from instanceof DecimalType ? type.scale() >= ((DecimalType) from).scale() : NumericTypes.isInteger(from);
            return keepsDigits && type.precision() - type.scale() >= digits(from);
        }
        if (NumericTypes.isInteger(from)) {
            boolean isExact = target.equals("double") && !source.equals("bigint");
            return isExact || NumericTypes.INTEGERS.indexOf(target) >= NumericTypes.INTEGERS.indexOf(source);
        }
        return source.equals("float") && target.equals("double");
    }
}
