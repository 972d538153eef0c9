package penstock.duckdb;

import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.JsonFields;
import penstock.duckdb.dialect.NativeZones;
import penstock.plans.Catalyst;

/** Functions of timestamps in DuckDB's SQL; `NativeZones` converts between instants and local times. */
final class NativeTimes {
    private static final Map<String, Object> TIME_FIELDS = Catalyst.pairs("Hour hour Minute minute Second second");
    private static final Map<String, Object> UNITS_SINCE_1970 = Catalyst.pairs("UnixMicros 1 UnixMillis 1000 UnixSeconds 1000000");
    private static final Map<String, Object> INSTANTS = Catalyst.pairs("MicrosToTimestamp 1 MillisToTimestamp 1000 SecondsToTimestamp 1000000");
    /** The units of `date_trunc`: DuckDB's name, and below the maximum length in seconds. */
    private static final Map<String, Object> UNITS = Catalyst.pairs("MINUTE minute HOUR hour DAY day DD day WEEK week MON month MM month "
            + "MONTH month QUARTER quarter YEAR year YYYY year YY year");
    private static final Map<String, Object> UNIT_SECONDS = Catalyst.pairs("minute 60 hour 3600 day 86400 week 604800 month 2678400 quarter 7948800 "
            + "year 31622400");
    /** Units that are the same in all zones, in microseconds. */
    private static final Map<String, Object> SHORT_UNITS = Catalyst.pairs("MICROSECOND 1 MILLISECOND 1000 SECOND 1000000");
    /** Patterns of Java and of DuckDB for numbers of a fixed width. */
    private static final Map<String, Object> PATTERNS = Catalyst.pairs("yyyy %Y MM %m dd %d HH %H mm %M ss %S");
    private static final String SEPARATORS = "-/:. ,_";
    private static final String DATE_FORM = "[1-9]\\d{3}-\\d\\d-\\d\\d";
    private static final String TIME_FORM = "[ T]([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?";
    private static final String OFFSET = "(Z|[+-](0\\d|1[0-7]):[0-5]\\d)";
    private static final Map<Object, Object> ZONES = new HashMap<>();

    /** Returns a function of timestamps or a cast from or to them; null for other expressions. */
    static String of(Expression expression) throws Declined {
        String name = Catalyst.name(expression);
        if (expression instanceof Cast) {
            return cast((Cast) expression);
        }
        if (TIME_FIELDS.containsKey(name) && isTime(Catalyst.first(expression).dataType())) {
            return "CAST(" + TIME_FIELDS.get(name) + "(" + localTimestamp(Catalyst.first(expression), expression) + ") AS INTEGER)";
        }
        if (UNITS_SINCE_1970.containsKey(name)) {
            return floored(micros(Catalyst.first(expression)), (String) UNITS_SINCE_1970.get(name));
        }
        if (INSTANTS.containsKey(name) && Catalyst.type(Catalyst.first(expression)).matches("int|bigint|smallint|tinyint")) {
            return "make_timestamptz(CAST(" + NativeSql.of(Catalyst.first(expression)) + " AS BIGINT) * " + INSTANTS.get(name) + ")";
        }
        if (name.equals("PreciseTimestampConversion")) {
            return isTime(expression.dataType()) ? ofMicros(NativeSql.of(Catalyst.first(expression)), expression.dataType())
                    : micros(Catalyst.first(expression));
        }
        if (name.equals("TruncTimestamp")) {
            return truncated(expression);
        }
        if (name.equals("DateFormatClass")) {
            return formatted(localTimestamp(Catalyst.first(expression), expression), Catalyst.last(expression));
        }
        if (name.equals("FromUnixTime")) {
            String local = zone(expression).local("(" + NativeSql.of(Catalyst.first(expression)) + " * 1000000)");
            return formatted("make_timestamp(" + local + ")", Catalyst.last(expression));
        }
        boolean isUnixTime = name.equals("UnixTimestamp") || name.equals("ToUnixTimestamp");
        if (isUnixTime && isTime(Catalyst.first(expression).dataType())) {
            String micros = micros(Catalyst.first(expression));
            return "CASE WHEN " + micros + " < 0 AND " + micros + " % 1000000 <> 0 THEN " + NativeZones.ERROR + " ELSE " + micros + " // 1000000 END";
        }
        return null;
    }

    static boolean isTime(DataType type) {
        return type.catalogString().equals("timestamp") || type.catalogString().equals("timestamp_ntz");
    }

    private static String cast(Cast cast) throws Declined {
        Expression child = cast.child();
        String from = Catalyst.type(child);
        String to = Catalyst.type(cast);
        if (from.equals(to) || !isTime(child.dataType()) && !isTime(cast.dataType())) {
            return null;
        }
        if (isTime(child.dataType()) && to.equals("date")) {
            return "CAST(" + localTimestamp(child, cast) + " AS DATE)";
        }
        if (from.equals("timestamp") && to.equals("timestamp_ntz")) {
            return localTimestamp(child, cast);
        }
        if (from.equals("timestamp_ntz") && to.equals("timestamp")) {
            return "make_timestamptz(" + zone(cast).instant(micros(child)) + ")";
        }
        if (from.equals("string")) {
            return ofText(NativeSql.of(child), cast.dataType(), cast.zoneId());
        }
        if (from.equals("date")) {
            String days = "(" + NativeTypes.finite(NativeSql.of(child)) + " - DATE '1970-01-01')";
            return to.equals("timestamp") ? "make_timestamptz(" + zone(cast).startOfDay(days) + ")" : "make_timestamp(" + days + " * " + NativeZones.DAY + ")";
        }
        if (from.equals("timestamp") && to.equals("bigint")) {
            return floored(micros(child), "1000000");
        }
        if (isTime(child.dataType()) && to.equals("string")) { // without the trailing zeros of the fraction
            return "rtrim(rtrim(strftime(" + localTimestamp(child, cast) + ", '%Y-%m-%d %H:%M:%S.%f'), '0'), '.')";
        }
        throw new Declined("a cast of " + from + " to " + to);
    }

    /** Returns the date or time of a text in the usual form of ISO 8601; other texts are errors. */
    static String ofText(String text, DataType type, ZoneId zone) throws Declined {
        String value = "CAST(x AS DATE)";
        String form = DATE_FORM;
        if (isTime(type)) {
            value = "CAST(x AS TIMESTAMP)";
            form += TIME_FORM;
        }
        if (type.catalogString().equals("timestamp")) {
            form += OFFSET + "?";
            value = "CASE WHEN regexp_matches(x, '" + OFFSET + "$') THEN CAST(x AS TIMESTAMPTZ) ELSE "
                    + JsonFields.bound("m", "epoch_us(" + value + ")", "make_timestamptz(" + zone(zone).instant("m") + ")") + " END";
        }
        return JsonFields.bound("x", text, "CASE WHEN regexp_full_match(x, '" + form + "') THEN " + value + " WHEN x IS NOT NULL THEN error('an unusual text of a date or time') END");
    }

    private static String truncated(Expression expression) throws Declined {
        Object format = Catalyst.first(expression) instanceof Literal ? ((Literal) Catalyst.first(expression)).value() : null;
        String name = String.valueOf(format).toUpperCase(java.util.Locale.ROOT);
        String micros = micros(Catalyst.last(expression));
        if (SHORT_UNITS.containsKey(name)) {
            return "make_timestamptz(" + floored(micros, (String) SHORT_UNITS.get(name)) + " * " + SHORT_UNITS.get(name) + ")";
        }
        if (!UNITS.containsKey(name)) {
            throw new Declined("a unit of time that is not constant");
        }
        String unit = (String) UNITS.get(name);
        return "make_timestamptz(" + zone(expression).truncated(micros, unit, Long.parseLong((String) UNIT_SECONDS.get(unit)) * NativeZones.SECOND) + ")";
    }

    /** Returns a local time as text, by a pattern of numbers with fixed widths and of separators. */
    private static String formatted(String local, Expression format) throws Declined {
        Object value = format instanceof Literal ? ((Literal) format).value() : null;
        String pattern = value == null ? "" : value.toString();
        StringBuilder translated = new StringBuilder();
        int end;
        for (int start = 0; start < pattern.length(); start = end) {
            for (end = start + 1; end < pattern.length() && pattern.charAt(end) == pattern.charAt(start);) {
                end++;
            }
            String field = pattern.substring(start, end);
            boolean isSeparator = SEPARATORS.indexOf(pattern.charAt(start)) >= 0;
            if (!isSeparator && !PATTERNS.containsKey(field)) {
                throw new Declined("a pattern of times with other fields than yyyy, MM, dd, HH, mm and ss");
            }
            translated.append(isSeparator ? field : PATTERNS.get(field));
        }
        if (pattern.isEmpty() || SQLConf.get().legacyTimeParserPolicy().toString().equals("LEGACY")) {
            throw new Declined("a pattern of times that is not constant, or of Spark 2");
        }
        return "strftime(" + local + ", '" + translated + "')";
    }

    /** Returns the microseconds since 1970 of a timestamp. */
    private static String micros(Expression time) throws Declined {
        String sql = NativeSql.of(time);
        // Columns of files may have the two values that DuckDB reads as infinite.
        return "epoch_us(" + (time instanceof AttributeReference ? "CASE WHEN isinf(" + sql + ") THEN " + NativeZones.ERROR + " ELSE " + sql + " END" : sql) + ")";
    }

    private static String ofMicros(String micros, DataType type) {
        return (type.catalogString().equals("timestamp") ? "make_timestamptz(" : "make_timestamp(") + micros + ")";
    }

    /** Returns a timestamp in the zone of an expression, as a DuckDB TIMESTAMP of the years 1 to 9999. */
    private static String localTimestamp(Expression time, Expression zoned) throws Declined {
        NativeZones zone = Catalyst.type(time).equals("timestamp") ? zone(zoned) : zone(ZoneOffset.UTC);
        return "make_timestamp(" + zone.local(micros(time)) + ")";
    }

    private static NativeZones zone(Expression zoned) {
        return zone(((TimeZoneAwareExpression) zoned).zoneId());
    }

    private static NativeZones zone(ZoneId zone) {
        synchronized (ZONES) {
            if (!ZONES.containsKey(zone)) {
                ZONES.put(zone, new NativeZones(zone));
            }
            return (NativeZones) ZONES.get(zone);
        }
    }

    /** Returns a quotient of integers, rounded down. */
    private static String floored(String dividend, String divisor) {
        return "((" + dividend + " - ((" + dividend + " % " + divisor + ") + " + divisor + ") % " + divisor + ") // " + divisor + ")";
    }
}
