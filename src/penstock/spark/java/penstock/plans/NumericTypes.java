package penstock.plans;

import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Enumeration;
import scala.Product;

/** The numeric types of SQL, and the sums that cannot overflow. */
public final class NumericTypes {
    /** The integer types, the smallest first. */
    public static final List<String> INTEGERS = Arrays.asList("tinyint smallint int bigint".split(" "));

    /** Additional digits of a sum of decimals; filling them takes more than 10 billion rows. */
    private static final int DIGITS_OF_SUM = 10;

    public static boolean isInteger(DataType type) {
        return INTEGERS.contains(type.catalogString());
    }

    public static boolean isFloating(DataType type) {
        return type.catalogString().equals("float") || type.catalogString().equals("double");
    }

    /** Whether the sum of an integer expression as bigint cannot overflow for fewer than some billion rows. */
    public static boolean sumFitsLong(Expression expression) {
        return !Catalyst.type(expression).equals("bigint") || Catalyst.name(expression).equals("UnscaledValue");
    }

    /** Whether a type is a decimal whose sum cannot overflow for fewer than 10 billion rows. */
    public static boolean isSummedExactly(DataType type) {
        return type instanceof DecimalType && ((DecimalType) type).precision() + DIGITS_OF_SUM <= DecimalType.MAX_PRECISION();
    }

    /** Returns the type of a sum of decimals, as in Spark. */
    public static DecimalType sumType(DecimalType type) {
        return new DecimalType(Math.min(type.precision() + DIGITS_OF_SUM, DecimalType.MAX_PRECISION()), type.scale());
    }

    /** Returns the overflow mode of an expression: LEGACY (wraps around), ANSI or TRY; empty if it has none. */
    public static String overflowMode(Expression expression) {
        for (int i = 0; i < ((Product) expression).productArity(); i++) {
            Object part = ((Product) expression).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression) && ((Product) part).productArity() > 0
                    ? ((Product) part).productElement(0) : part; // since Spark 4.1, the mode is in a context object
            if (mode instanceof Enumeration.Value) {
                return mode.toString();
            }
        }
        return "";
    }
}
