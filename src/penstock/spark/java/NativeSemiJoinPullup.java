package penstock;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

/**
 * Pulls semi and anti joins up above the inner joins below which Spark has pushed them down.
 *
 * Both plans are equivalent, but DuckDB reorders only inner joins.
 */
final class NativeSemiJoinPullup {
    private NativeSemiJoinPullup() {
    }

    /** Pulls semi joins up from the sides of an inner join if they read more bytes than the other side has. */
    static LogicalPlan pullUp(Join join) {
        Join left = semiJoin(join.left(), join.right());
        if (left != null) {
            LogicalPlan inner = pullUp((Join) (Object) join.withNewChildren(pair(left.left(), join.right())));
            return projectTo(join, (LogicalPlan) (Object) left.withNewChildren(pair(inner, left.right())));
        }
        Join right = semiJoin(join.right(), join.left());
        if (right != null) {
            LogicalPlan inner = pullUp((Join) (Object) join.withNewChildren(pair(join.left(), right.left())));
            return projectTo(join, (LogicalPlan) (Object) right.withNewChildren(pair(inner, right.right())));
        }
        return join;
    }

    /** Returns the semi or anti join of a side, below column pruning; null if there is none to pull up. */
    private static Join semiJoin(LogicalPlan side, LogicalPlan other) {
        LogicalPlan plan = side;
        while (Catalyst.isPruning(plan)) {
            plan = ((Project) plan).child();
        }
        if (!(plan instanceof Join)) {
            return null;
        }
        String kind = ((Join) plan).joinType().toString();
        boolean drops = kind.equals("LeftSemi") || kind.equals("LeftAnti");
        return drops && bytes(((Join) plan).right()).compareTo(bytes(other)) > 0 ? (Join) plan : null;
    }

    /** Returns Spark's size estimate of the tables that a plan reads, in bytes. */
    static BigInteger bytes(LogicalPlan plan) {
        BigInteger bytes = BigInteger.ZERO;
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            bytes = bytes.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        return bytes;
    }

    /** Projects a plan to the columns of a join. */
    private static LogicalPlan projectTo(Join join, LogicalPlan plan) {
        List<NamedExpression> columns = new ArrayList<>();
        for (Object column : Catalyst.each(join.output())) {
            columns.add((NamedExpression) (Attribute) column);
        }
        // Always: a skipped projection may have reordered the columns, which is visible to unions and users.
        return new Project(PythonUtils.toSeq(columns), plan);
    }

    private static scala.collection.immutable.Seq<LogicalPlan> pair(LogicalPlan left, LogicalPlan right) {
        List<LogicalPlan> both = new ArrayList<>();
        both.add(left);
        both.add(right);
        return PythonUtils.toSeq(both);
    }
}
