package penstock.duckdb.dialect;

import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.ArrayList;
import java.util.List;

/**
 * Local times of a zone in DuckDB's SQL, by the rules of Java, which Spark uses.
 *
 * The periods of constant offset are the leaves of a binary search, which CASE expressions write out. Years after
 * `LAST_YEAR` have no periods, except the end of the year 9999, which often stands for "always": times in them are errors,
 * so that Spark computes them.
 */
public final class NativeZones {
    public static final long SECOND = 1_000_000;
    public static final long DAY = 86_400 * SECOND;
    /** The local times from the year 1 to the year 9999, in microseconds since 1970. */
    public static final long FIRST_TIME = -62_135_596_800L * SECOND;
    public static final long LAST_TIME = 253_402_300_800L * SECOND - 1;
    private static final int LAST_YEAR = 2050;
    /** The years 1970 to 2036, which have days. Each period needs a longer expression than an offset. */
    private static final long FIRST_OF_DAYS = 0;
    private static final long LAST_OF_DAYS = 2_114_380_800L * SECOND;
    /** The years 2000 to 2034, which have weeks, months and longer units. */
    private static final long FIRST_OF_LONG_UNITS = 946_684_800L * SECOND;
    private static final long LAST_OF_LONG_UNITS = 2_051_222_400L * SECOND;
    public static final String ERROR = "error('a time that only Java converts')";

    private final List<Object> periods = new ArrayList<>();

    /** A period of constant offset; all in microseconds, `end` is exclusive. Without `isKnown`, times are errors. */
    private static final class Period {
        final long start;
        final long end;
        final long offset;
        final boolean isKnown;

        Period(long start, long end, long offset, boolean isKnown) {
            this.start = start;
            this.end = end;
            this.offset = offset;
            this.isKnown = isKnown;
        }
    }

    public NativeZones(ZoneId zone) {
        ZoneRules rules = zone.getRules();
        long firstOffset = micros(rules.getOffset(Instant.ofEpochSecond(FIRST_TIME / SECOND)));
        long lastOffset = micros(rules.getOffset(Instant.ofEpochSecond(LAST_TIME / SECOND)));
        long end = LAST_TIME + 1 - lastOffset;
        long start = FIRST_TIME - firstOffset;
        Instant limit = Instant.parse(LAST_YEAR + "-01-01T00:00:00Z");
        ZoneOffsetTransition transition = rules.nextTransition(Instant.ofEpochSecond(start / SECOND));
        long offset = firstOffset;
        while (transition != null && transition.getInstant().isBefore(limit)) {
            long next = transition.toEpochSecond() * SECOND;
            periods.add(new Period(start, next, offset, true));
            start = next;
            offset = micros(transition.getOffsetAfter());
            transition = rules.nextTransition(transition.getInstant());
        }
        if (transition == null) {
            periods.add(new Period(start, end, offset, true));
            return;
        }
        long last = rules.previousTransition(Instant.ofEpochSecond(end / SECOND - 1)).toEpochSecond() * SECOND;
        periods.add(new Period(start, transition.toEpochSecond() * SECOND, offset, true));
        periods.add(new Period(transition.toEpochSecond() * SECOND, last, 0, false));
        periods.add(new Period(last, end, lastOffset, true));
    }

    private static long micros(ZoneOffset offset) {
        return offset.getTotalSeconds() * SECOND;
    }

    /** Returns the local microseconds of an instant, a column or expression of microseconds since 1970. */
    public String local(String instant) {
        Search search = new Search(instant);
        for (int i = 0; i < periods.size(); i++) {
            search.add(period(i).start, period(i).isKnown ? String.valueOf(period(i).offset) : ERROR);
        }
        return "(" + instant + " + " + search.sql(last().end) + ")";
    }

    /** Returns the instant of local microseconds: the earlier of two, or after a gap by the length of the gap, as in Java. */
    public String instant(String local) {
        Search search = new Search(local);
        for (int i = 0; i < periods.size(); i++) {
            search.add(localStart(i), period(i).isKnown ? String.valueOf(period(i).offset) : ERROR);
        }
        return "(" + local + " - " + search.sql(LAST_TIME + 1) + ")";
    }

    /** Returns the local time at which the offset of a period applies: the offset before applies in a gap and in an overlap. */
    private long localStart(int index) {
        Period period = period(index);
        Period before = period(Math.max(index - 1, 0));
        if (!period.isKnown || !before.isKnown) {
            return period.start + (period.isKnown ? DAY : -DAY);
        }
        return period.start + Math.max(before.offset, period.offset);
    }

    /** Returns the instant at which a local day, a date, starts: in Java at the end of a gap, if it has midnight. */
    public String startOfDay(String date) {
        Search search = new Search(date);
        for (int i = 0; i < periods.size(); i++) {
            Period period = period(i);
            long start = localStart(i);
            if (i > 0 && period(i - 1).isKnown && period.isKnown && period(i - 1).offset < period.offset) {
                long midnight = Math.floorDiv(period.start + period(i - 1).offset, DAY) + 1; // the first after the gap begins
                if (midnight * DAY < start) {
                    search.add(midnight, ERROR);
                }
            }
            search.add(-Math.floorDiv(-start, DAY), period.isKnown ? String.valueOf(period.offset) : ERROR);
        }
        return "((" + date + ") * " + DAY + " - " + search.sql((LAST_TIME + 1) / DAY) + ")";
    }

    /** Returns the instant at which the unit of an instant (`minute` to `year`) starts; `length` is its maximum length. */
    public String truncated(String instant, String unit, long length) {
        long first = length > DAY ? FIRST_OF_LONG_UNITS : length == DAY ? FIRST_OF_DAYS : FIRST_TIME;
        long end = length > DAY ? LAST_OF_LONG_UNITS : length == DAY ? LAST_OF_DAYS : LAST_TIME;
        Search search = new Search(instant);
        for (int i = 0; i < periods.size(); i++) {
            Period period = period(i);
            boolean isInRange = period.end > first && period.start < end || periods.size() == 1;
            search.add(period.start, period.isKnown && isInRange ? truncated(instant, unit, length, i) : ERROR);
        }
        return search.sql(last().end);
    }

    /** Returns the start of a unit if the instant is in a period: the unit may start in an earlier period. */
    private String truncated(String instant, String unit, long length, int index) {
        String local = "epoch_us(date_trunc('" + unit + "', make_timestamp(" + instant + " + " + period(index).offset + ")))";
        StringBuilder sql = new StringBuilder("CASE");
        for (int i = index; i >= 0 && period(i).isKnown; i--) {
            Period period = period(i);
            String start = "(" + local + " - " + period.offset + ")";
            boolean startsWithUnit = i == index && length <= 3_600 * SECOND && (period.start + period.offset) % length == 0;
            if (startsWithUnit || period.start <= period(index).start - length - 2 * DAY || i == 0) {
                return sql.length() == 4 ? start : sql + " ELSE " + start + " END";
            }
            if (length > DAY && isMidnightSkippedOrRepeated(i)) {
                return ERROR;
            }
            sql.append(" WHEN ").append(start).append(" >= ").append(period.start).append(" THEN ").append(start);
        }
        return ERROR;
    }

    /** Whether the clock changes across a midnight at the start of a period; a gap may begin at midnight. */
    private boolean isMidnightSkippedOrRepeated(int index) {
        long before = period(index).start + period(index - 1).offset;
        long after = period(index).start + period(index).offset;
        return before < after ? Math.floorDiv(before, DAY) != Math.floorDiv(after - 1, DAY)
                : Math.floorDiv(after - 1, DAY) != Math.floorDiv(before - 1, DAY);
    }

    private Period period(int index) {
        return (Period) periods.get(index);
    }

    private Period last() {
        return period(periods.size() - 1);
    }

    /** A binary search of a value in ascending ranges, each with an SQL result; values outside of them are errors. */
    private static final class Search {
        private final String value;
        private final List<Object> starts = new ArrayList<>();
        private final List<Object> results = new ArrayList<>();

        Search(String value) {
            this.value = value;
            results.add(ERROR);
        }

        void add(long start, String result) {
            if (!result.equals(results.get(results.size() - 1))) {
                starts.add(start);
                results.add(result);
            }
        }

        String sql(long end) {
            add(end, ERROR);
            return "(CASE WHEN " + value + " IS NULL THEN NULL ELSE " + sql(0, results.size() - 1) + " END)";
        }

        private String sql(int first, int last) {
            if (first == last) {
                return (String) results.get(first);
            }
            int middle = (first + last + 1) / 2;
            return "CASE WHEN " + value + " < " + starts.get(middle - 1) + " THEN " + sql(first, middle - 1) + " ELSE " + sql(middle, last) + " END";
        }
    }
}
