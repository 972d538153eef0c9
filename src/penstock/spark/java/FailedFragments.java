package penstock;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.plans.QueryPlan;

/** Plans that the native engine failed to compute, with the reason: repeating the failure costs more than Spark alone. */
public final class FailedFragments {
    /** Older plans are removed, as each holds the list of its files. */
    private static final int MAX_PLANS = 64;

    private static final Map<Object, Object> FAILURES = new LinkedHashMap<>();

    /** Adds a plan and the reason of its failure. */
    public void add(QueryPlan<?> plan, String reason) {
        Failure failure = new Failure(reason, ListingComparison.versions(plan)); // may list files, so outside of the lock
        synchronized (FAILURES) {
            FAILURES.put(plan.canonicalized(), failure);
            if (FAILURES.size() > MAX_PLANS) {
                FAILURES.remove(FAILURES.keySet().iterator().next());
            }
        }
    }

    /** Returns why an equal plan over the same file versions failed, null if it did not. */
    public String reason(QueryPlan<?> plan) {
        Failure failure;
        synchronized (FAILURES) {
            failure = (Failure) FAILURES.get(plan.canonicalized());
        }
        // Spark considers relations over the same folders equal, even if their file listings differ.
        return failure != null && failure.files.equals(ListingComparison.versions(plan)) ? failure.reason : null;
    }

    /** The reason of a failure, and the file versions at that time. */
    private static final class Failure {
        private final String reason;
        private final Set<Object> files;

        Failure(String reason, Set<Object> files) {
            this.reason = reason;
            this.files = files;
        }
    }
}
