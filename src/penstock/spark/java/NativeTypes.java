package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Enumeration;
import scala.Product;

/** The types and values that DuckDB and Spark have in common, and which arithmetic of them is exact; see `NativeSql`. */
final class NativeTypes {
    private static final Map<String, Object> TYPES = new HashMap<>();
    private static final List<String> WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    private static final int[] DIGITS = {3, 5, 10, 19};
    /** A sum of decimals has so many digits more. */
    private static final int DIGITS_OF_SUM = 10;
    /** 5 and 14 October 1582, in days since 1970. */
    private static final long NO_DAYS_FROM = -141_437;
    private static final long NO_DAYS_TO = -141_428;

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
            return "(DATE '1970-01-01' + " + text + ")";
        }
        if (name.equals("FLOAT") || name.equals("DOUBLE")) {
            if (!Double.isFinite(((Number) value).doubleValue())) {
                throw new NativeSql.Declined("a number that is not finite");
            }
        }
        return "CAST('" + text + "' AS " + name + ")";
    }

    private static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }

    /** Whether a type is one of floating-point numbers. */
    static boolean isFloating(DataType type) {
        return type.catalogString().equals("float") || type.catalogString().equals("double");
    }

    /**
     * Returns a cast of a decimal to a type that rounds it, half up as Spark does, or in which it may have no place, which
     * is an error in DuckDB then.
     */
    static String narrowed(Cast cast, String sql) throws NativeSql.Declined {
        DecimalType to = (DecimalType) cast.dataType();
        if (mode(cast).equals("TRY")) {
            throw new NativeSql.Declined("a cast that tries");
        }
        DecimalType from = (DecimalType) cast.child().dataType();
        int room = to.precision() - to.scale();
        String fails = "abs(" + sql + ") >= " + BigDecimal.TEN.pow(room) + " THEN error('a number that does not fit')";
        String isOut = room < from.precision() - from.scale() ? fails : sql + " IS NULL THEN NULL";
        // As a case, it stays what it is: of CAST(x AS a narrower type) < 9, DuckDB makes x < 9.
        return "(CASE WHEN " + isOut + " ELSE CAST(" + sql + " AS " + nameOf(to) + ") END)";
    }

    /** Whether a cast makes a decimal of another one that is rounded, or may have no place in it. */
    static boolean narrows(Cast cast) {
        if (!(cast.dataType() instanceof DecimalType) || !(cast.child().dataType() instanceof DecimalType)) {
            return false;
        }
        DecimalType from = (DecimalType) cast.child().dataType();
        DecimalType to = (DecimalType) cast.dataType();
        return to.scale() < from.scale() || to.precision() - to.scale() < from.precision() - from.scale();
    }

    /** Checks that every value has a place in the type of a cast, and that nothing is rounded. */
    static void checkCast(Cast cast) throws NativeSql.Declined {
        DataType from = cast.child().dataType();
        DataType to = cast.dataType();
        String old = from.catalogString();
        String wanted = to.catalogString();
        boolean fits = old.equals(wanted);
        if (to instanceof DecimalType) {
            int room = ((DecimalType) to).precision() - ((DecimalType) to).scale();
            if (from instanceof DecimalType) {
                DecimalType given = (DecimalType) from;
                // Of CAST(x AS a narrower type) < 9, DuckDB makes x < 9, which is another thing where x does not fit.
                fits = ((DecimalType) to).scale() >= given.scale() && room >= given.precision() - given.scale();
            } else {
                fits = WHOLE.contains(old) && room >= DIGITS[WHOLE.indexOf(old)];
            }
        } else if (WHOLE.contains(old)) {
            boolean exact = wanted.equals("double") && !old.equals("bigint");
            fits = exact || WHOLE.indexOf(wanted) >= WHOLE.indexOf(old);
        } else if (old.equals("float")) {
            fits = wanted.equals("float") || wanted.equals("double");
        }
        if (!fits) {
            throw new NativeSql.Declined("a cast of " + old + " to " + wanted);
        }
    }

    /** Checks that a result is exact, or else an error in DuckDB. */
    static void checkArithmetic(BinaryArithmetic one, String name) throws NativeSql.Declined {
        if (mode(one).equals("TRY")) {
            throw new NativeSql.Declined("expression " + name);
        }
        if (!(one.dataType() instanceof DecimalType)) {
            // DuckDB makes i < 9 of i + 1 < 10, which is another thing where i + 1 does not fit.
            if (!Catalyst.type(one).equals("double")) {
                throw new NativeSql.Declined("arithmetic of " + Catalyst.type(one));
            }
            return;
        }
        DecimalType a = (DecimalType) Catalyst.first(one).dataType();
        DecimalType b = (DecimalType) Catalyst.last(one).dataType();
        int scale = name.equals("Multiply") ? a.scale() + b.scale() : Math.max(a.scale(), b.scale());
        boolean isRounded = ((DecimalType) one.dataType()).scale() != scale;
        if (isRounded && (!name.equals("Multiply") || scale > DecimalType.MAX_SCALE())) { // a cast of a product rounds as Spark does
            throw new NativeSql.Declined("decimals that are rounded");
        }
    }

    /** Returns what happens where a number does not fit: LEGACY, ANSI or TRY. */
    static String mode(Expression one) {
        for (int i = 0; i < ((Product) one).productArity(); i++) {
            Object part = ((Product) one).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression)
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
