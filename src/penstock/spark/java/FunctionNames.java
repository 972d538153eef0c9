package penstock;

import java.util.HashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.types.StructType;

/** The names of the functions in the expressions of a plan node that matter for how it may be run. */
final class FunctionNames {
    /** The hidden column of files (``FileFormat.METADATA_NAME``, which Janino cannot call). */
    private static final String METADATA = "_metadata";

    private static final String OF_BLOCK = "file_block_";

    /** The names of the aggregate functions. */
    final Set<String> aggregates = new HashSet<>();

    /** The names of all else that is not deterministic by itself; Subquery for one that has such in it. */
    final Set<String> unstable = new HashSet<>();

    /** The names of the Python functions. */
    final Set<String> python = new HashSet<>();

    FunctionNames(LogicalPlan plan) {
        for (Object expression : Catalyst.each(plan.expressions())) {
            add((Expression) expression);
        }
        if (plan instanceof Sample) {
            unstable.add("Sample");
        }
        if (Catalyst.name(plan).equals(RowLayout.NUMBERED)) {
            unstable.add(RowLayout.NUMBERED);
        }
        for (Object subquery : Catalyst.each(plan.subqueries())) {
            if (isUnstable((LogicalPlan) subquery)) {
                unstable.add("Subquery");
            }
        }
    }

    private static boolean isUnstable(LogicalPlan plan) {
        boolean found = !new FunctionNames(plan).unstable.isEmpty();
        for (Object child : Catalyst.each(plan.children())) {
            found = found || isUnstable((LogicalPlan) child);
        }
        return found;
    }

    private void add(Expression expression) {
        Expression parent = expression;
        if (expression instanceof PythonFuncExpression) {
            python.add(((PythonFuncExpression) expression).name());
        }
        if (isBlockOfFile(expression)) {
            unstable.add("InputFileBlockStart");
        } else if (expression instanceof AggregateExpression) {
            AggregateExpression aggregate = (AggregateExpression) expression;
            aggregates.add(Catalyst.name(aggregate.aggregateFunction()));
            parent = aggregate.aggregateFunction();
            if (parent instanceof PythonFuncExpression) {
                python.add(((PythonFuncExpression) parent).name());
            }
            if (aggregate.filter().isDefined()) {
                Object filter = aggregate.filter().get();
                add((Expression) filter);
            }
        } else if (!expression.deterministic() && (expression instanceof Nondeterministic || !below(expression))) {
            unstable.add(Catalyst.name(expression));
        }
        for (Object child : Catalyst.each(parent.children())) {
            if (!(parent instanceof GetStructField && isMetadata((Expression) child))) {
                add((Expression) child);
            }
        }
    }

    /** Whether an expression is the hidden column _metadata, or a field of it, that says in which split a row was read. */
    private static boolean isBlockOfFile(Expression expression) {
        if (expression instanceof GetStructField && isMetadata(Catalyst.first(expression))) {
            return ((GetStructField) expression).extractFieldName().startsWith(OF_BLOCK);
        }
        if (!isMetadata(expression)) {
            return false;
        }
        for (String name : ((StructType) expression.dataType()).fieldNames()) {
            if (name.startsWith(OF_BLOCK)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isMetadata(Expression expression) {
        return expression instanceof AttributeReference && expression.dataType() instanceof StructType
                && ((AttributeReference) expression).name().equals(METADATA);
    }

    /** Whether a part of an expression, not the expression itself, is what is not deterministic. */
    private static boolean below(Expression expression) {
        for (Object child : Catalyst.each(expression.children())) {
            if (!((Expression) child).deterministic()) {
                return true;
            }
        }
        return false;
    }
}
