package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

/** Casts in the SQL of DuckDB: what has no place in a type is an error; see `NativeSql`. */
final class NativeCasts {
    private static final List<String> WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    private static final int[] DIGITS = {3, 5, 10, 19};

    /** Up to so many digits, what Java's and DuckDB's texts of a double round to is the same. */
    private static final int DIGITS_OF_DOUBLE = 15;

    private NativeCasts() {
    }

    /** Returns a cast of a value. */
    static String of(Cast cast, String sql) throws NativeSql.Declined {
        DataType from = cast.child().dataType();
        DataType to = cast.dataType();
        String type = NativeTypes.nameOf(to);
        boolean isTry = NativeTypes.mode(cast).equals("TRY");
        if (to instanceof DecimalType && !isTry) {
            DecimalType wanted = (DecimalType) to;
            int room = wanted.precision() - wanted.scale();
            int digits = digits(from);
            if (from.catalogString().equals("double") && wanted.precision() <= DIGITS_OF_DOUBLE) { // Spark rounds its text
                String text = "CAST(" + sql + " AS VARCHAR)";
                return narrowed(text, "contains(" + text + ", 'e') THEN error('a number that is rounded otherwise')", type);
            }
            if (digits > room) {
                return narrowed(sql, "abs(" + sql + ") >= " + BigDecimal.TEN.pow(room) + " THEN error('a number that does not fit')", type);
            }
            if (from instanceof DecimalType && wanted.scale() < ((DecimalType) from).scale()) { // is rounded half up, as by Spark
                return narrowed(sql, sql + " IS NULL THEN NULL", type);
            }
        }
        if (!fits(from, to)) {
            throw new NativeSql.Declined("a cast of " + from.catalogString() + " to " + to.catalogString());
        }
        return "CAST(" + sql + " AS " + type + ")";
    }

    /** Returns how many digits before the point a whole number or decimal has at most, none of other types. */
    private static int digits(DataType type) {
        if (type instanceof DecimalType) {
            return ((DecimalType) type).precision() - ((DecimalType) type).scale();
        }
        int place = WHOLE.indexOf(type.catalogString());
        return place < 0 ? 0 : DIGITS[place];
    }

    /** As a case, a cast stays what it is: of CAST(x AS a narrower type) < 9, DuckDB makes x < 9. */
    private static String narrowed(String sql, String otherwise, String type) {
        return "(CASE WHEN " + otherwise + " ELSE CAST(" + sql + " AS " + type + ") END)";
    }

    /** Whether every value has a place in a type, and nothing is rounded. */
    private static boolean fits(DataType from, DataType to) {
        String old = from.catalogString();
        String wanted = to.catalogString();
        if (old.equals(wanted)) {
            return true;
        }
        if (to instanceof DecimalType) {
            DecimalType type = (DecimalType) to;
            boolean keeps = from instanceof DecimalType ? type.scale() >= ((DecimalType) from).scale() : WHOLE.contains(old);
            return keeps && type.precision() - type.scale() >= digits(from);
        }
        if (WHOLE.contains(old)) {
            boolean isExact = wanted.equals("double") && !old.equals("bigint");
            return isExact || WHOLE.indexOf(wanted) >= WHOLE.indexOf(old);
        }
        return old.equals("float") && wanted.equals("double");
    }
}
