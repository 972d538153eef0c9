package penstock;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.plans.QueryPlan;

/** Plans that the native engine has failed to compute, and why: an engine that fails again costs more than Spark alone. */
public final class FailedFragments {
    /** The oldest plans are forgotten: each holds the list of its files. */
    private static final int MOST = 64;

    private static final Map<Object, Object> FAILURES = new LinkedHashMap<>();

    /** Remembers a plan, and why it failed. */
    public void add(QueryPlan<?> plan, String reason) {
        Failure failure = new Failure(reason, ListingComparison.versions(plan)); // may list: not under the lock
        synchronized (FAILURES) {
            FAILURES.put(plan.canonicalized(), failure);
            if (FAILURES.size() > MOST) {
                FAILURES.remove(FAILURES.keySet().iterator().next());
            }
        }
    }

    /** Returns why an equal plan over the same versions of its files failed, null if none did. */
    public String reason(QueryPlan<?> plan) {
        Failure failure;
        synchronized (FAILURES) {
            failure = (Failure) FAILURES.get(plan.canonicalized());
        }
        // Spark holds relations equal whose folders are the same, whatever they have listed.
        return failure != null && failure.files.equals(ListingComparison.versions(plan)) ? failure.reason : null;
    }

    /** Why a plan failed, and the versions of its files then. */
    private static final class Failure {
        private final String reason;
        private final Set<Object> files;

        Failure(String reason, Set<Object> files) {
            this.reason = reason;
            this.files = files;
        }
    }
}
