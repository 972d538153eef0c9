package penstock.plans;

import java.math.BigInteger;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/** The size of a query's sources, and the parsing of sizes in options. */
public final class SourceBytes {
    private static final Pattern SIZE = Pattern.compile("([0-9.]+) *([kmgtp]?)(?:i?b|bytes)?");

    /** Returns the bytes of all leaves of a plan and its subqueries by Spark's estimates; Long.MAX_VALUE on overflow. */
    public static long total(LogicalPlan plan) {
        BigInteger sum = BigInteger.ZERO;
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            sum = node.children().isEmpty() ? sum.add(node.stats().sizeInBytes().bigInteger()) : sum;
        }
        return sum.min(BigInteger.valueOf(Long.MAX_VALUE)).longValue();
    }

    /** Parses a size like `parse_size` in Python; returns 0 for invalid sizes, which the job reports. */
    public static long parse(String text) {
        Matcher matcher = SIZE.matcher(text.trim().toLowerCase(Locale.ROOT));
        if (!matcher.matches()) {
            return 0;
        }
        int power = matcher.group(2).isEmpty() ? 0 : "kmgtp".indexOf(matcher.group(2)) + 1;
        return (long) (Double.parseDouble(matcher.group(1)) * Math.pow(1024, power));
    }
}
