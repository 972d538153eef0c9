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

/** The types and values that DuckDB and Spark have in common, and which arithmetic of them is exact; see `NativeSql`. */
final class NativeTypes {
    private static final Map<String, Object> TYPES = new HashMap<>();
    private static final List<String> WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    /** A sum of decimals has so many digits more. */
    private static final int DIGITS_OF_SUM = 10;
    /** 5 and 14 October 1582, in days since 1970. */
    private static final long NO_DAYS_FROM = -141_437;
    private static final long NO_DAYS_TO = -141_428;
    /** 1 January of the year 1, and 31 December of the year 9999. */
    private static final long FIRST_DAY = -719_162;
    private static final long LAST_DAY = 2_932_896;
    static final String TWO_TO_63 = "9223372036854775808::HUGEINT";
    private static final String TWO_TO_64 = "18446744073709551616::HUGEINT";

    static {
        String[] words = ("boolean BOOLEAN tinyint TINYINT smallint SMALLINT int INTEGER bigint BIGINT float FLOAT "
                + "double DOUBLE date DATE string VARCHAR").split(" ");
        for (int i = 0; i < words.length; i += 2) {
            TYPES.put(words[i], words[i + 1]);
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

    /** Returns a value in Spark's own form. */
    static String literal(Object value, DataType type) throws NativeSql.Declined {
        String name = nameOf(type);
        if (value == null) {
            return "CAST(NULL AS " + name + ")";
        }
        String text = value.toString();
        if (name.equals("VARCHAR")) {
            if (text.indexOf('\0') >= 0 || text.indexOf('\uFFFD') >= 0) { // perhaps no text at all
                throw new NativeSql.Declined("a text with unusual characters");
            }
            return quoted(text);
        }
        if (name.equals("DATE")) {
            long day = Long.parseLong(text);
            if (day >= NO_DAYS_FROM && day <= NO_DAYS_TO) { // Spark's filters of Parquet take it for a later day
                throw new NativeSql.Declined("a day that the Julian and the Gregorian calendar left out");
            }
            if (day < FIRST_DAY || day > LAST_DAY) { // Spark's filters of Parquet fail on some, and DuckDB takes two for infinite
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

    /** Returns a date, or an error if DuckDB takes it for infinite: it has no year then, and no next day. */
    static String finite(String date) {
        return "CASE WHEN isinf(" + date + ") THEN error('a date that DuckDB reads as infinite') ELSE " + date + " END";
    }

    /** Returns a whole number of any size as the bigint that remains if only the lowest 64 bits are kept. */
    static String wrapped(String number) {
        String rest = "(" + number + " % " + TWO_TO_64 + ")";
        return "CAST(CASE WHEN " + rest + " >= " + TWO_TO_63 + " THEN " + rest + " - " + TWO_TO_64 + " WHEN " + rest + " < -" + TWO_TO_63
                + " THEN " + rest + " + " + TWO_TO_64 + " ELSE " + rest + " END AS BIGINT)";
    }

    private static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }

    /** Whether a type is one of floating-point numbers. */
    static boolean isFloating(DataType type) {
        return type.catalogString().equals("float") || type.catalogString().equals("double");
    }

    /** Returns what happens where a number does not fit: LEGACY, ANSI or TRY. */
    static String mode(Expression one) {
        for (int i = 0; i < ((Product) one).productArity(); i++) {
            Object part = ((Product) one).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression) && ((Product) part).productArity() > 0
                    ? ((Product) part).productElement(0) : part; // within a context since Spark 4.1
            if (mode instanceof Enumeration.Value) {
                return mode.toString();
            }
        }
        return "";
    }

    /** Whether a type is a decimal that ten thousand million rows cannot fill when they are summed. */
    static boolean isSummedExactly(DataType type) {
        return type instanceof DecimalType
                && ((DecimalType) type).precision() + DIGITS_OF_SUM <= DecimalType.MAX_PRECISION();
    }

    /** Returns the type of a sum of decimals. */
    static DecimalType summed(DecimalType type) {
        return new DecimalType(Math.min(type.precision() + DIGITS_OF_SUM, DecimalType.MAX_PRECISION()), type.scale());
    }

    static boolean isWhole(DataType type) {
        return WHOLE.contains(type.catalogString());
    }

    /** Whether an expression is a whole number that some thousand million rows cannot fill when they are summed as bigint. */
    static boolean isSmall(Expression one) {
        return !Catalyst.type(one).equals("bigint") || Catalyst.name(one).equals("UnscaledValue");
    }

    /** Returns zero, of a decimal type. */
    static String zero(DataType type) throws NativeSql.Declined {
        return literal(BigDecimal.ZERO, type);
    }

    /** Returns the largest number of a sum of decimals. */
    static String largest(DataType type) throws NativeSql.Declined {
        int scale = ((DecimalType) type).scale();
        DecimalType sum = new DecimalType(DecimalType.MAX_PRECISION(), scale);
        return literal(BigDecimal.TEN.pow(DecimalType.MAX_PRECISION()).subtract(BigDecimal.ONE).movePointLeft(scale), sum);
    }
}
