package penstock.duckdb;

import java.math.BigDecimal;
import java.util.Map;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.NativeZones;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** The types and values that DuckDB and Spark share, and the bounds of exact arithmetic; see `NativeSql`. */
final class NativeTypes {
    private static final Map<String, Object> TYPES = Catalyst.pairs("boolean BOOLEAN tinyint TINYINT smallint SMALLINT int INTEGER "
            + "bigint BIGINT float FLOAT double DOUBLE date DATE string VARCHAR timestamp TIMESTAMPTZ timestamp_ntz TIMESTAMP");
    /** 5 and 14 October 1582, in days since 1970: the gap between the Julian and the Gregorian calendar. */
    private static final long GAP_START = -141_437;
    private static final long GAP_END = -141_428;
    /** 1 January of the year 1, and 31 December of the year 9999. */
    private static final long FIRST_DAY = -719_162;
    private static final long LAST_DAY = 2_932_896;
    /** 1 January 1900 in UTC, in microseconds since 1970. */
    private static final long FIRST_INSTANT = -2_208_988_800_000_000L;
    static final String TWO_TO_63 = "9223372036854775808::HUGEINT";
    private static final String TWO_TO_64 = "18446744073709551616::HUGEINT";

    static String nameOf(DataType type) throws Declined {
        if (type instanceof DecimalType) {
            return "DECIMAL(" + ((DecimalType) type).precision() + "," + ((DecimalType) type).scale() + ")";
        }
        Object name = TYPES.get(type.catalogString());
        if (name == null) {
            throw new Declined("type " + type.catalogString());
        }
        return (String) name;
    }

    /** Returns a literal of a value in Spark's internal form. */
    static String literal(Object value, DataType type) throws Declined {
        String name = nameOf(type);
        if (value == null) {
            return "CAST(NULL AS " + name + ")";
        }
        String text = value.toString();
        if (name.equals("VARCHAR")) {
            if (text.indexOf('\0') >= 0 || text.indexOf('\uFFFD') >= 0) { // possibly invalid UTF-8
                throw new Declined("a text with unusual characters");
            }
            return "'" + text.replace("'", "''") + "'";
        }
        if (name.equals("DATE")) {
            long day = Long.parseLong(text);
            if (day >= GAP_START && day <= GAP_END) { // Spark's Parquet filters shift it to a later day
                throw new Declined("a day between the Julian and the Gregorian calendar");
            }
            if (day < FIRST_DAY || day > LAST_DAY) { // Spark's Parquet filters fail on some, and two are infinite in DuckDB
                throw new Declined("a day before the year 1, or after the year 9999");
            }
            return "(DATE '1970-01-01' + " + text + ")";
        }
        if (name.startsWith("TIMESTAMP")) {
            boolean isLocal = name.equals("TIMESTAMP");
            long micros = Long.parseLong(text);
            // Until 1900, Spark's Parquet filters shift some instants, as calendars and offsets differed.
            if (micros < (isLocal ? NativeZones.FIRST_TIME : FIRST_INSTANT) || micros > NativeZones.LAST_TIME) {
                throw new Declined("a time before 1900, or after the year 9999");
            }
            return (isLocal ? "make_timestamp(" : "make_timestamptz(") + micros + ")";
        }
        return "CAST('" + text + "' AS " + name + ")";
    }

    /** Returns a value as a key: all NaN are the same, and negative zero is zero, as in Spark. Other types are unchanged. */
    static String normalized(String sql, DataType type) throws Declined {
        String name = nameOf(type);
        return !NumericTypes.isFloating(type) ? sql
                : "(CASE WHEN " + sql + " = 0 THEN CAST(0 AS " + name + ") WHEN isnan(" + sql + ") THEN CAST('NaN' AS " + name + ") ELSE " + sql + " END)";
    }

    /** Returns a date, or an error if DuckDB reads it as infinite: an infinite date has no year and no next day. */
    static String finite(String date) {
        return date.startsWith("CAST(make_timestamp(") ? date : "CASE WHEN isinf(" + date + ") THEN error('a date that DuckDB reads as infinite') ELSE " + date + " END";
    }

    /** Returns the lowest 64 bits of an integer of any size as a signed bigint. */
    static String wrapped(String number) {
        String remainder = "(" + number + " % " + TWO_TO_64 + ")";
        return "CAST(CASE WHEN " + remainder + " >= " + TWO_TO_63 + " THEN " + remainder + " - " + TWO_TO_64 + " WHEN " + remainder + " < -" + TWO_TO_63
                + " THEN " + remainder + " + " + TWO_TO_64 + " ELSE " + remainder + " END AS BIGINT)";
    }

    /** Returns a literal of the largest value that a sum can have: 38 nines, with the scale of `type`. */
    static String largestSum(DataType type) throws Declined {
        int scale = ((DecimalType) type).scale();
        DecimalType sum = new DecimalType(DecimalType.MAX_PRECISION(), scale);
        return literal(BigDecimal.TEN.pow(DecimalType.MAX_PRECISION()).subtract(BigDecimal.ONE).movePointLeft(scale), sum);
    }
}
