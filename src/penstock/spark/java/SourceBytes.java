package penstock;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

import scala.math.BigInt;

/** The size of a query's sources, and the parsing of sizes in options. */
public final class SourceBytes {
    private static final Pattern SIZE = Pattern.compile("([0-9.]+) *([kmgtp]?)(?:i?b|bytes)?");

    /** Returns the bytes of all leaves of a plan and its subqueries. */
    public long total(LogicalPlan plan) {
        return of(plan);
    }

    /** Returns the bytes of all leaves by Spark's estimates; Long.MAX_VALUE on overflow. */
    static long of(LogicalPlan plan) {
        long sum = 0;
        if (plan.children().isEmpty()) {
            BigInt own = plan.stats().sizeInBytes();
            sum = own.isValidLong() ? own.toLong() : Long.MAX_VALUE;
        }
        for (Object element : Catalyst.below(plan)) {
            long more = of((LogicalPlan) element);
            sum = sum + more < 0 ? Long.MAX_VALUE : sum + more;
        }
        return sum;
    }

    /** Parses a size like `parse_size` in Python; returns 0 for invalid sizes, which the job reports. */
    static long parsed(String text) {
        Matcher matcher = SIZE.matcher(text.trim().toLowerCase(Locale.ROOT));
        if (!matcher.matches()) {
            return 0;
        }
        int power = matcher.group(2).isEmpty() ? 0 : "kmgtp".indexOf(matcher.group(2)) + 1;
        return (long) (Double.parseDouble(matcher.group(1)) * Math.pow(1024, power));
    }
}
