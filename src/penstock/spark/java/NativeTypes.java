package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Enumeration;
import scala.Product;

/** The types and values that DuckDB and Spark share, and the bounds of exact arithmetic; see `NativeSql`. */
final class NativeTypes {
    private static final Map<String, Object> TYPES = new HashMap<>();
    private static final List<String> INTEGERS = Arrays.asList("tinyint smallint int bigint".split(" "));
    /** Additional digits of a sum of decimals. */
    private static final int DIGITS_OF_SUM = 10;
    /** 5 and 14 October 1582, in days since 1970: the gap between the Julian and the Gregorian calendar. */
    private static final long GAP_START = -141_437;
    private static final long GAP_END = -141_428;
    /** 1 January of the year 1, and 31 December of the year 9999. */
    private static final long FIRST_DAY = -719_162;
    private static final long LAST_DAY = 2_932_896;
    static final String TWO_TO_63 = "9223372036854775808::HUGEINT";
    private static final String TWO_TO_64 = "18446744073709551616::HUGEINT";

    static {
        String[] names = ("boolean BOOLEAN tinyint TINYINT smallint SMALLINT int INTEGER bigint BIGINT float FLOAT "
                + "double DOUBLE date DATE string VARCHAR").split(" ");
        for (int i = 0; i < names.length; i += 2) {
            TYPES.put(names[i], names[i + 1]);
        }
    }

    private NativeTypes() {
    }

    /** Returns a type's name. */
    static String nameOf(DataType type) throws NativeSql.Declined {
        if (type instanceof DecimalType) {
            return "DECIMAL(" + ((DecimalType) type).precision() + "," + ((DecimalType) type).scale() + ")";
        }
        Object name = TYPES.get(type.catalogString());
        if (name == null) {
            throw new NativeSql.Declined("type " + type.catalogString());
        }
        return (String) name;
    }

    /** Returns a literal of a value in Spark's internal form. */
    static String literal(Object value, DataType type) throws NativeSql.Declined {
        String name = nameOf(type);
        if (value == null) {
            return "CAST(NULL AS " + name + ")";
        }
        String text = value.toString();
        if (name.equals("VARCHAR")) {
            if (text.indexOf('\0') >= 0 || text.indexOf('\uFFFD') >= 0) { // possibly invalid UTF-8
                throw new NativeSql.Declined("a text with unusual characters");
            }
            return quoted(text);
        }
        if (name.equals("DATE")) {
            long day = Long.parseLong(text);
            if (day >= GAP_START && day <= GAP_END) { // Spark's Parquet filters shift it to a later day
                throw new NativeSql.Declined("a day between the Julian and the Gregorian calendar");
            }
            if (day < FIRST_DAY || day > LAST_DAY) { // Spark's Parquet filters fail on some, and two are infinite in DuckDB
                throw new NativeSql.Declined("a day before the year 1, or after the year 9999");
            }
            return "(DATE '1970-01-01' + " + text + ")";
        }
        if (name.equals("FLOAT") || name.equals("DOUBLE")) {
            if (!Double.isFinite(((Number) value).doubleValue())) {
                throw new NativeSql.Declined("a number that is not finite");
            }
        }
        return "CAST('" + text + "' AS " + name + ")";
    }

    /** Returns a date, or an error if it is infinite in DuckDB, where it has no year and no next day. */
    static String finite(String date) {
        return "CASE WHEN isinf(" + date + ") THEN error('a date that DuckDB reads as infinite') ELSE " + date + " END";
    }

    /** Returns the lowest 64 bits of an integer of any size as a signed bigint. */
    static String wrapped(String number) {
        String rest = "(" + number + " % " + TWO_TO_64 + ")";
        return "CAST(CASE WHEN " + rest + " >= " + TWO_TO_63 + " THEN " + rest + " - " + TWO_TO_64 + " WHEN " + rest + " < -" + TWO_TO_63
                + " THEN " + rest + " + " + TWO_TO_64 + " ELSE " + rest + " END AS BIGINT)";
    }

    private static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }

    /** Whether a type is a floating-point type. */
    static boolean isFloating(DataType type) {
        return type.catalogString().equals("float") || type.catalogString().equals("double");
    }

    /** Returns the overflow mode of an expression: LEGACY, ANSI or TRY; empty if it has none. */
    static String mode(Expression expression) {
        for (int i = 0; i < ((Product) expression).productArity(); i++) {
            Object part = ((Product) expression).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression) && ((Product) part).productArity() > 0
                    ? ((Product) part).productElement(0) : part; // nested in a context since Spark 4.1
            if (mode instanceof Enumeration.Value) {
                return mode.toString();
            }
        }
        return "";
    }

    /** Whether a type is a decimal whose sum cannot overflow below 10 billion rows. */
    static boolean isSummedExactly(DataType type) {
        return type instanceof DecimalType
                && ((DecimalType) type).precision() + DIGITS_OF_SUM <= DecimalType.MAX_PRECISION();
    }

    /** Returns the type of a sum of decimals. */
    static DecimalType summed(DecimalType type) {
        return new DecimalType(Math.min(type.precision() + DIGITS_OF_SUM, DecimalType.MAX_PRECISION()), type.scale());
    }

    static boolean isInteger(DataType type) {
        return INTEGERS.contains(type.catalogString());
    }

    /** Whether an expression is an integer whose sum as bigint cannot overflow below some billion rows. */
    static boolean isSmall(Expression expression) {
        return !Catalyst.type(expression).equals("bigint") || Catalyst.name(expression).equals("UnscaledValue");
    }

    /** Returns zero of a decimal type. */
    static String zero(DataType type) throws NativeSql.Declined {
        return literal(BigDecimal.ZERO, type);
    }

    /** Returns the largest value of a sum of decimals. */
    static String largest(DataType type) throws NativeSql.Declined {
        int scale = ((DecimalType) type).scale();
        DecimalType sum = new DecimalType(DecimalType.MAX_PRECISION(), scale);
        return literal(BigDecimal.TEN.pow(DecimalType.MAX_PRECISION()).subtract(BigDecimal.ONE).movePointLeft(scale), sum);
    }
}
