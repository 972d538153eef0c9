package penstock.plans;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInSum;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

import scala.Option;

/** The functions of an aggregate in two steps: partial aggregation before a join, and merging after the join. */
final class JoinPreAggregation {
    /** Types, besides decimals, whose equal values are identical. */
    private static final List<String> IDENTICAL_IF_EQUAL = Arrays.asList(
            "boolean tinyint smallint int bigint date timestamp timestamp_ntz string binary".split(" "));

    /** Factors by which grouping columns other than keys may multiply the number of groups. */
    final List<Object> bounds = new ArrayList<>();

    private final Map<ExprId, Attribute> groups = new LinkedHashMap<>();
    private final Map<ExprId, Expression> constants = new LinkedHashMap<>(); // columns that equal a literal
    private final List<AggregateExpression> functions = new ArrayList<>();
    private final List<Alias> partialResults = new ArrayList<>();

    private JoinPreAggregation() {
    }

    /** Returns partial aggregates of the other relations; null if merging may change results or groups are too many. */
    static JoinPreAggregation of(List<Expression> groups, List<Expression> results, List<Attribute> keys, JoinTree tree,
            LogicalPlan relation, LogicalPlan others) {
        JoinPreAggregation preAggregation = new JoinPreAggregation();
        List<Expression> required = new ArrayList<>(groups);
        for (Expression result : results) {
            preAggregation.addFunctions(result, required);
        }
        for (AggregateExpression function : preAggregation.functions) {
            if (!isMergeable(function)) {
                return null;
            }
            Expression input = Catalyst.first(function.aggregateFunction());
            // Without a match, an outer join returns null for columns of `others`, but perhaps not for an expression.
            if (!input.references().subsetOf(others.outputSet())
                    || tree.isOuterSide(relation) && !(aggregatedValue(input) instanceof AttributeReference)) {
                return null;
            }
            Expression partial = function.aggregateFunction().toAggregateExpression();
            preAggregation.partialResults.add(Catalyst.alias(partial, "partial", NamedExpression$.MODULE$.newExprId()));
        }
        List<Expression> conditions = new ArrayList<>();
        for (LogicalPlan other : tree.relations) {
            if (other != relation && JoinTree.table(other, conditions) == null) {
                return null;
            }
        }
        for (Attribute key : keys) {
            preAggregation.groups.put(key.exprId(), key);
        }
        for (Expression expression : required) {
            for (Attribute column : Catalyst.each(expression.references().toSeq())) {
                if (others.outputSet().contains(column) && !preAggregation.addColumn(column, conditions)) {
                    return null;
                }
            }
        }
        for (Attribute group : preAggregation.groups.values()) {
            if (!isIdenticalIfEqual(group.dataType())) {
                return null;
            }
        }
        return preAggregation.functions.isEmpty() ? null : preAggregation;
    }

    /** Adds a column that is not a join key; returns false if the conditions do not bound the number of its values. */
    private boolean addColumn(Attribute column, List<Expression> conditions) {
        if (groups.containsKey(column.exprId()) || constants.containsKey(column.exprId())) {
            return true;
        }
        for (Expression condition : conditions) {
            boolean isOfColumn = !condition.children().isEmpty() && Catalyst.first(condition) instanceof AttributeReference
                    && ((AttributeReference) Catalyst.first(condition)).exprId().equals(column.exprId());
            if (isOfColumn && Catalyst.name(condition).equals("EqualTo") && Catalyst.last(condition) instanceof Literal) {
                if (!isIdenticalIfEqual(column.dataType())) {
                    return false;
                }
                constants.put(column.exprId(), alias(Catalyst.last(condition), column));
                return true;
            }
            if (isOfColumn && Catalyst.name(condition).equals("In")) {
                groups.put(column.exprId(), column);
                bounds.add(condition.children().size() - 1);
                return true;
            }
        }
        return false;
    }

    /** Adds the aggregate functions of an expression; adds columns outside of them to `required`. */
    private void addFunctions(Expression expression, List<Expression> required) {
        if (expression instanceof AggregateExpression) {
            functions.add((AggregateExpression) expression);
        } else if (expression instanceof AttributeReference) {
            required.add(expression);
        } else {
            for (Expression child : Catalyst.each(expression.children())) {
                addFunctions(child, required);
            }
        }
    }

    private static boolean isIdenticalIfEqual(DataType type) {
        return type instanceof DecimalType || IDENTICAL_IF_EQUAL.contains(type.catalogString());
    }

    /** Whether partial results of a function merge to its exact result, and no partial result can fail. */
    static boolean isMergeable(AggregateExpression expression) {
        AggregateFunction function = expression.aggregateFunction();
        String name = Catalyst.name(function);
        if (expression.isDistinct() || expression.filter().isDefined() || !expression.mode().toString().equals("Complete")
                || function.children().size() != 1 || !Catalyst.first(function).deterministic()
                || !ExpressionSafety.cannotFail(aggregatedValue(Catalyst.first(function)))) {
            return false;
        }
        DataType type = Catalyst.first(function).dataType();
        if (name.equals("Sum")) {
            String mode = NumericTypes.overflowMode(function);
            return type instanceof DecimalType ? NumericTypes.isSummedExactly(type) && !mode.equals("TRY")
                    : NumericTypes.isInteger(type) && (mode.equals("LEGACY") || NumericTypes.sumFitsLong(Catalyst.first(function)));
        }
        return name.equals("Count") || (name.equals("Min") || name.equals("Max")) && isIdenticalIfEqual(type);
    }

    /** Returns the value that a function aggregates: Spark sums small decimals as unscaled values. */
    private static Expression aggregatedValue(Expression input) {
        return Catalyst.name(input).equals("UnscaledValue") ? Catalyst.first(input) : input;
    }

    List<Object> names() {
        List<Object> names = new ArrayList<>();
        for (Attribute group : groups.values()) {
            names.add(group.name());
        }
        return names;
    }

    /** Returns the grouping columns of the partial aggregate. */
    List<Object> groups() {
        return new ArrayList<>(groups.values());
    }

    /** Returns the output columns of the partial aggregate. */
    List<Object> results() {
        List<Object> results = new ArrayList<>(groups.values());
        results.addAll(constants.values());
        results.addAll(partialResults);
        return results;
    }

    /** Returns the results of the aggregate, computed from the partial results. */
    List<Object> merged(List<Expression> results) {
        List<Object> merged = new ArrayList<>();
        for (Expression result : results) {
            merged.add(merged(result));
        }
        return merged;
    }

    private Expression merged(Expression expression) {
        int index = functions.indexOf(expression);
        if (index >= 0) {
            Alias partialResult = (Alias) (Object) partialResults.get(index);
            return merge(((AggregateExpression) expression).aggregateFunction(), partialResult.toAttribute());
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(merged(child));
        }
        return Catalyst.withChildren(expression, children);
    }

    private static Expression merge(AggregateFunction function, Attribute partialResult) {
        if (Catalyst.name(function).equals("Count")) {
            Expression[] sumOrZero = {new Sum(partialResult).toAggregateExpression(), new Literal(0L, DataTypes.LongType)};
            return new Coalesce(PythonUtils.toSeq(Arrays.asList(sumOrZero)));
        }
        Expression sameFunction = Catalyst.withChildren(function, Arrays.asList(new Expression[] {partialResult}));
        Expression merged = ((AggregateFunction) sameFunction).toAggregateExpression();
        if (merged.dataType() instanceof DecimalType && !merged.dataType().equals(function.dataType())) {
            boolean nullOnOverflow = !NumericTypes.overflowMode(function).equals("ANSI");
            Expression checked = new CheckOverflowInSum(merged, (DecimalType) function.dataType(), nullOnOverflow, null);
            // The check treats null as an overflow; a merged null means that all values are null.
            return new If(new IsNull(merged), new Literal(null, function.dataType()), checked);
        }
        return merged;
    }

    /** Returns a value under the name and id of a column. */
    static Alias alias(Expression value, NamedExpression column) {
        return new Alias(value, column.name(), column.exprId(), column.qualifier(), Option.apply(column.metadata()),
                Catalyst.<String>emptySeq());
    }
}
