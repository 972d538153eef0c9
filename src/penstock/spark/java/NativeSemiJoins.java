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
 * Moves semi and anti joins above the inner joins that they are below of, as Spark has pushed them down.
 *
 * They drop rows in either place. DuckDB orders inner joins by itself, but none of the others.
 */
final class NativeSemiJoins {
    private NativeSemiJoins() {
    }

    /** Returns an inner join with the semi joins of its sides above it, where these read more than the other side has. */
    static LogicalPlan above(Join join) {
        Join left = semiJoin(join.left(), join.right());
        if (left != null) {
            LogicalPlan inner = above((Join) (Object) join.withNewChildren(pair(left.left(), join.right())));
            return shown(join, (LogicalPlan) (Object) left.withNewChildren(pair(inner, left.right())));
        }
        Join right = semiJoin(join.right(), join.left());
        if (right != null) {
            LogicalPlan inner = above((Join) (Object) join.withNewChildren(pair(join.left(), right.left())));
            return shown(join, (LogicalPlan) (Object) right.withNewChildren(pair(inner, right.right())));
        }
        return join;
    }

    /** Returns the semi or anti join that a side is, less a choice of its columns; null if it is none that should move. */
    private static Join semiJoin(LogicalPlan side, LogicalPlan other) {
        LogicalPlan one = side;
        while (one instanceof Project && isChoice((Project) one)) {
            one = ((Project) one).child();
        }
        if (!(one instanceof Join)) {
            return null;
        }
        String kind = ((Join) one).joinType().toString();
        boolean drops = kind.equals("LeftSemi") || kind.equals("LeftAnti");
        return drops && bytes(((Join) one).right()).compareTo(bytes(other)) > 0 ? (Join) one : null;
    }

    /** Whether a projection gives columns as they are. */
    static boolean isChoice(Project project) {
        for (Object each : Catalyst.each(project.projectList())) {
            if (!(each instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    /** Returns the bytes of the tables that a plan reads, by Spark's estimates. */
    static BigInteger bytes(LogicalPlan plan) {
        BigInteger found = BigInteger.ZERO;
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            found = found.add(((LogicalPlan) leaf).stats().sizeInBytes().bigInteger());
        }
        return found;
    }

    /** Returns the columns of a join, of a plan that may have more. */
    private static LogicalPlan shown(Join join, LogicalPlan plan) {
        List<NamedExpression> columns = new ArrayList<>();
        for (Object column : Catalyst.each(join.output())) {
            columns.add((NamedExpression) (Attribute) column);
        }
        // Always: a choice of columns that was left out may have had them in another order, which unions and users see.
        return new Project(PythonUtils.toSeq(columns), plan);
    }

    private static scala.collection.immutable.Seq<LogicalPlan> pair(LogicalPlan left, LogicalPlan right) {
        List<LogicalPlan> both = new ArrayList<>();
        both.add(left);
        both.add(right);
        return PythonUtils.toSeq(both);
    }
}
