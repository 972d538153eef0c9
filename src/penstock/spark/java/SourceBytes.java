package penstock;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

import scala.math.BigInt;

/** What the sources of a query hold, and how a user spells such a number. */
public final class SourceBytes {
    private static final Pattern SIZE = Pattern.compile("([0-9.]+) *([kmgtp]?)(?:i?b|bytes)?");

    /** Returns what all leaves of a plan hold, those of its subqueries included. */
    public long inAll(LogicalPlan plan) {
        return of(plan);
    }

    /** Returns what all leaves hold, by Spark's estimates; Long.MAX_VALUE where that is beyond any number. */
    static long of(LogicalPlan plan) {
        long sum = 0;
        if (plan.children().isEmpty()) {
            BigInt own = plan.stats().sizeInBytes();
            sum = own.isValidLong() ? own.toLong() : Long.MAX_VALUE;
        }
        for (Object each : Catalyst.below(plan)) {
            long more = of((LogicalPlan) each);
            sum = sum + more < 0 ? Long.MAX_VALUE : sum + more;
        }
        return sum;
    }

    /** Returns a number of bytes, spelled as `parse_size` of Python reads it; the job says what is wrong with others. */
    static long parsed(String text) {
        Matcher found = SIZE.matcher(text.trim().toLowerCase(Locale.ROOT));
        if (!found.matches()) {
            return 0;
        }
        int power = found.group(2).isEmpty() ? 0 : "kmgtp".indexOf(found.group(2)) + 1;
        return (long) (Double.parseDouble(found.group(1)) * Math.pow(1024, power));
    }
}
