package penstock.plans;

import java.util.ArrayList;
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

import scala.jdk.javaapi.CollectionConverters;

import penstock.bridge.Answer;

/** Searches a plan and its subqueries for settings and metrics that a user has attached. */
public final class PlanSearch {
    /** Whether metrics are observed on a plan, its subqueries, or its cached inputs. */
    public boolean observesMetrics(LogicalPlan plan) {
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            if (node instanceof CollectMetrics || node instanceof InMemoryRelation
                    && observesMetrics(((InMemoryRelation) node).cacheBuilder().logicalPlan())) {
                return true;
            }
        }
        return false;
    }

    /** Returns the advisory sizes of a plan's exchanges, and the lower-case names of options and Hive properties. */
    public Object advisorySizesAndOptions(LogicalPlan plan) throws JsonProcessingException {
        List<Object> sizes = new ArrayList<>();
        Set<Object> options = new HashSet<>();
        addSizesAndOptions(plan, sizes, options);
        return Answer.of(Answer.facts("sizes", sizes, "options", options));
    }

    /** Whether a plan contains a plan hint (an advisory size between the bounds) or a reader option of Penstock. */
    public boolean hasUserSettings(LogicalPlan plan, long hintLower, long hintUpper) {
        List<Object> sizes = new ArrayList<>();
        Set<Object> options = new HashSet<>();
        addSizesAndOptions(plan, sizes, options);
        for (Object size : sizes) {
            if ((Long) size > hintLower && (Long) size < hintUpper) {
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

    private static void addSizesAndOptions(LogicalPlan plan, List<Object> sizes, Set<Object> options) {
        for (LogicalPlan node : Catalyst.withSubqueries(plan)) {
            if (node instanceof RebalancePartitions) {
                sizes.addAll(CollectionConverters.asJava(((RebalancePartitions) node).optAdvisoryPartitionSize().toList()));
            } else if (node instanceof HiveTableRelation) {
                addNames(options, CollectionConverters.asJava(((HiveTableRelation) node).tableMeta().properties()));
            } else if (Catalyst.fileRelation(node) != null) {
                addNames(options, CollectionConverters.asJava(Catalyst.fileRelation(node).options()));
            }
        }
    }

    private static void addNames(Set<Object> names, Map<?, ?> options) {
        for (Object name : options.keySet()) {
            names.add(((String) name).toLowerCase(Locale.ROOT));
        }
    }
}
