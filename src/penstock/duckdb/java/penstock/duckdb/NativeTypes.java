package penstock.duckdb;

import java.math.BigDecimal;
import java.util.Map;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import penstock.plans.Catalyst;

/** The types and values that DuckDB and Spark share, and the bounds of exact arithmetic; see `NativeSql`. */
final class NativeTypes {
    private static final Map<String, Object> TYPES = Catalyst.pairs("boolean BOOLEAN tinyint TINYINT smallint SMALLINT int INTEGER "
            + "bigint BIGINT float FLOAT double DOUBLE date DATE string VARCHAR");
    /** 5 and 14 October 1582, in days since 1970: the gap between the Julian and the Gregorian calendar. */
    private static final long GAP_START = -141_437;
    private static final long GAP_END = -141_428;
    /** 1 January of the year 1, and 31 December of the year 9999. */
    private static final long FIRST_DAY = -719_162;
    private static final long LAST_DAY = 2_932_896;
    static final String TWO_TO_63 = "9223372036854775808::HUGEINT";
    private static final String TWO_TO_64 = "18446744073709551616::HUGEINT";

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
            return "'" + text.replace("'", "''") + "'";
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
        if ((name.equals("FLOAT") || name.equals("DOUBLE")) && !Double.isFinite(((Number) value).doubleValue())) {
            throw new NativeSql.Declined("a number that is not finite");
        }
        return "CAST('" + text + "' AS " + name + ")";
    }

    /** Returns the lowest 64 bits of an integer of any size as a signed bigint. */
    static String wrapped(String number) {
        String remainder = "(" + number + " % " + TWO_TO_64 + ")";
        return "CAST(CASE WHEN " + remainder + " >= " + TWO_TO_63 + " THEN " + remainder + " - " + TWO_TO_64 + " WHEN " + remainder + " < -" + TWO_TO_63
                + " THEN " + remainder + " + " + TWO_TO_64 + " ELSE " + remainder + " END AS BIGINT)";
    }

    /** Returns a literal of the largest value that a sum can have: 38 nines, with the scale of `type`. */
    static String largestSum(DataType type) throws NativeSql.Declined {
        int scale = ((DecimalType) type).scale();
        DecimalType sum = new DecimalType(DecimalType.MAX_PRECISION(), scale);
        return literal(BigDecimal.TEN.pow(DecimalType.MAX_PRECISION()).subtract(BigDecimal.ONE).movePointLeft(scale), sum);
    }
}
