package penstock.exchange;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.PartitioningCollection;
import org.apache.spark.sql.execution.SparkPlan;

import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;

/** The hash partitioning of a physical plan. */
public final class HashedLayout {
    /**
     * Returns the hash partitioning of a plan (SparkPlan.outputPartitioning) in the columns of a leaf that replaces the
     * plan; null if Spark reports no hash partitioning, or if a key is not among the columns.
     */
    public Partitioning of(SparkPlan plan, Seq<Attribute> output) {
        List<Partitioning> layouts = new ArrayList<>();
        if (plan.output().size() == output.size()) {
            addHashed(plan.outputPartitioning(), plan.output(), output, layouts);
        }
        if (layouts.size() > 1) {
            return new PartitioningCollection(PythonUtils.toSeq(layouts));
        }
        List<?> only = layouts;
        return only.isEmpty() ? null : (Partitioning) only.get(0);
    }

    private static void addHashed(Object layout, Seq<?> planColumns, Seq<?> leafColumns, List<Partitioning> layouts) {
        if (layout instanceof PartitioningCollection) {
            for (Object part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                addHashed(part, planColumns, leafColumns, layouts);
            }
        } else if (layout instanceof HashPartitioning || layout instanceof CoalescedHashPartitioning) {
            Object layoutOfLeaf = translate((Expression) layout, planColumns, leafColumns);
            if (layoutOfLeaf != null) {
                layouts.add((Partitioning) layoutOfLeaf);
            }
        }
    }

    private static Expression translate(Expression expression, Seq<?> planColumns, Seq<?> leafColumns) {
        if (expression instanceof Attribute) {
            int index = Catalyst.indexOf(expression, Catalyst.each(planColumns));
            return index < 0 ? null : (Expression) leafColumns.apply(index);
        }
        List<Expression> children = new ArrayList<>();
        for (Expression part : Catalyst.each(expression.children())) {
            Expression child = translate(part, planColumns, leafColumns);
            if (child == null) {
                return null;
            }
            children.add(child);
        }
        return Catalyst.withChildren(expression, children);
    }
}
