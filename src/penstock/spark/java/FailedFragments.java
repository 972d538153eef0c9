package penstock;

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.plans.QueryPlan;

/** Plans that the native engine has failed to compute, and why: an engine that fails again costs more than Spark alone. */
public final class FailedFragments {
    /** The oldest plans are forgotten: each holds the list of its files. */
    private static final int MOST = 64;

    private static final Map<Object, Object> REASONS = new LinkedHashMap<>();

    /** Remembers a plan, and why it failed. */
    public void add(QueryPlan<?> plan, String reason) {
        synchronized (REASONS) {
            REASONS.put(plan.canonicalized(), reason);
            if (REASONS.size() > MOST) {
                REASONS.remove(REASONS.keySet().iterator().next());
            }
        }
    }

    /** Returns why an equal plan failed, null if none did. */
    public String reason(QueryPlan<?> plan) {
        synchronized (REASONS) {
            return (String) REASONS.get(plan.canonicalized());
        }
    }
}
