package penstock;

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

/** Tells how the rows of a physical plan are hashed. */
public final class HashedLayout {
    /**
     * Returns how a plan's rows are hashed, as Spark says (SparkPlan.outputPartitioning), in the columns of a leaf
     * that stands for the plan; null where Spark does not say that they are, or a key is not among its columns.
     */
    public Partitioning of(SparkPlan plan, Seq<Attribute> output) {
        List<Partitioning> found = new ArrayList<>();
        if (plan.output().size() == output.size()) {
            addHashed(plan.outputPartitioning(), plan.output(), output, found);
        }
        if (found.size() > 1) {
            return new PartitioningCollection(PythonUtils.toSeq(found));
        }
        List<?> only = found;
        return only.isEmpty() ? null : (Partitioning) only.get(0);
    }

    private static void addHashed(Object layout, Seq<?> from, Seq<?> to, List<Partitioning> found) {
        if (layout instanceof PartitioningCollection) {
            for (Object part : Catalyst.each(((PartitioningCollection) layout).partitionings())) {
                addHashed(part, from, to, found);
            }
        } else if (layout instanceof HashPartitioning || layout instanceof CoalescedHashPartitioning) {
            Object moved = moved((Expression) layout, from, to);
            if (moved != null) {
                found.add((Partitioning) moved);
            }
        }
    }

    private static Expression moved(Expression expression, Seq<?> from, Seq<?> to) {
        if (expression instanceof Attribute) {
            for (int i = 0; i < from.size(); i++) {
                if (((Attribute) from.apply(i)).exprId().equals(((Attribute) expression).exprId())) {
                    return (Expression) to.apply(i);
                }
            }
            return null;
        }
        List<Expression> inner = new ArrayList<>();
        for (Object part : Catalyst.each(expression.children())) {
            Expression child = moved((Expression) part, from, to);
            if (child == null) {
                return null;
            }
            inner.add(child);
        }
        if (inner.isEmpty()) {
            return expression;
        }
        Object changed = expression.withNewChildren(PythonUtils.toSeq(inner));
        return (Expression) changed;
    }
}
