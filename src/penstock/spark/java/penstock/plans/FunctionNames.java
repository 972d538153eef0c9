package penstock.plans;

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

/** The names of the functions of a plan node that restrict how the node may run. */
final class FunctionNames {
    /** The hidden metadata column of files (``FileFormat.METADATA_NAME``, which Janino cannot call). */
    private static final String METADATA = "_metadata";

    private static final String BLOCK_FIELD = "file_block_"; // prefix of the metadata's fields about a part of a file

    final Set<String> aggregates = new HashSet<>();

    /** Names of nondeterministic operators and expressions, except aggregates; Subquery if a subquery has any. */
    final Set<String> nondeterministic = new HashSet<>();

    final Set<String> python = new HashSet<>();

    FunctionNames(LogicalPlan plan) {
        for (Expression expression : Catalyst.each(plan.expressions())) {
            add(expression);
        }
        if (plan instanceof Sample) {
            nondeterministic.add("Sample");
        }
        if (Catalyst.name(plan).equals(RowLayout.NUMBERED)) {
            nondeterministic.add(RowLayout.NUMBERED);
        }
        for (LogicalPlan subquery : Catalyst.each(plan.subqueries())) {
            for (LogicalPlan node : Catalyst.nodes(subquery)) {
                if (!new FunctionNames(node).nondeterministic.isEmpty()) {
                    nondeterministic.add("Subquery");
                }
            }
        }
    }

    private void add(Expression expression) {
        Expression parent = expression; // its children are added last
        if (expression instanceof PythonFuncExpression) {
            python.add(((PythonFuncExpression) expression).name());
        }
        if (isFileBlock(expression)) {
            nondeterministic.add("InputFileBlockStart");
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
        } else if (!expression.deterministic() && (expression instanceof Nondeterministic || !hasNondeterministicChild(expression))) {
            nondeterministic.add(Catalyst.name(expression));
        }
        for (Expression child : Catalyst.each(parent.children())) {
            if (!(parent instanceof GetStructField && isMetadata(child))) {
                add(child);
            }
        }
    }

    /** Whether an expression is a file-block field of the metadata column, or the column with such a field. */
    private static boolean isFileBlock(Expression expression) {
        if (expression instanceof GetStructField && isMetadata(Catalyst.first(expression))) {
            return ((GetStructField) expression).extractFieldName().startsWith(BLOCK_FIELD);
        }
        if (!isMetadata(expression)) {
            return false;
        }
        for (String name : ((StructType) expression.dataType()).fieldNames()) {
            if (name.startsWith(BLOCK_FIELD)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isMetadata(Expression expression) {
        return expression instanceof AttributeReference && expression.dataType() instanceof StructType
                && ((AttributeReference) expression).name().equals(METADATA);
    }

    private static boolean hasNondeterministicChild(Expression expression) {
        for (Expression child : Catalyst.each(expression.children())) {
            if (!child.deterministic()) {
                return true;
            }
        }
        return false;
    }
}
