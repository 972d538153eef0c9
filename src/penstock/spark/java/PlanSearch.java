package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.jdk.javaapi.CollectionConverters;

/** Searches a plan and its subqueries for settings and metrics that a user has attached. */
public final class PlanSearch {
    /** Whether metrics are observed on a plan, its subqueries, or its cached inputs. */
    public boolean observesMetrics(LogicalPlan plan) {
        boolean observes = plan instanceof CollectMetrics || plan instanceof InMemoryRelation
                && observesMetrics(((InMemoryRelation) plan).cacheBuilder().logicalPlan());
        for (Object below : Catalyst.below(plan)) {
            observes = observes || observesMetrics((LogicalPlan) below);
        }
        return observes;
    }

    /** Returns the advisory sizes of a plan's exchanges, and its readers' option names in lower case. */
    public Object advisorySizesAndOptions(LogicalPlan plan) throws JsonProcessingException {
        List<Object> sizes = new ArrayList<>();
        Set<Object> options = new HashSet<>();
        add(plan, sizes, options);
        Map<String, Object> facts = new HashMap<>();
        facts.put("sizes", sizes);
        facts.put("options", options);
        return Answer.of(facts);
    }

    /** Whether a plan contains a hint encoded as an advisory size, or a reader option of Penstock. */
    boolean hasUserSettings(LogicalPlan plan, long firstHint, long lastHint) {
        List<Object> sizes = new ArrayList<>();
        Set<Object> options = new HashSet<>();
        add(plan, sizes, options);
        for (Object size : sizes) {
            if ((Long) size > firstHint && (Long) size < lastHint) {
                return true;
            }
        }
        for (Object option : options) {
            if (((String) option).startsWith("scan.")) {
                return true;
            }
        }
        return false;
    }

    private static void add(LogicalPlan plan, List<Object> sizes, Set<Object> options) {
        if (plan instanceof RebalancePartitions) {
            if (((RebalancePartitions) plan).optAdvisoryPartitionSize().isDefined()) {
                sizes.add(((RebalancePartitions) plan).optAdvisoryPartitionSize().get());
            }
        } else if (plan instanceof HiveTableRelation) {
            addNames(options, CollectionConverters.asJava(((HiveTableRelation) plan).tableMeta().properties()));
        } else if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
            addNames(options, CollectionConverters.asJava(relation.options()));
        }
        for (Object below : Catalyst.below(plan)) {
            add((LogicalPlan) below, sizes, options);
        }
    }

    private static void addNames(Set<Object> names, Map<?, ?> options) {
        for (Object name : options.keySet()) {
            names.add(((String) name).toLowerCase(Locale.ROOT));
        }
    }
}
