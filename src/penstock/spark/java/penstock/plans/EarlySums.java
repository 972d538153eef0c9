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

/** The functions of an aggregate in two steps: partial aggregation before a join, and merging after it. */
final class EarlySums {
    /** Types whose equal values are identical. */
    private static final List<String> PLAIN = Arrays.asList(
            "boolean tinyint smallint int bigint date timestamp timestamp_ntz string binary".split(" "));

    /** Factors by which grouping columns other than keys may multiply the number of groups. */
    final List<Object> bounds = new ArrayList<>();

    private final Map<ExprId, Attribute> groups = new LinkedHashMap<>();
    private final Map<ExprId, Expression> constants = new LinkedHashMap<>();
    private final List<AggregateExpression> functions = new ArrayList<>();
    private final List<Alias> sums = new ArrayList<>();

    private EarlySums() {
    }

    /** Returns the partial aggregates of all relations except one; null if merging them may change a result. */
    static EarlySums of(List<Expression> groups, List<Expression> results, List<Attribute> keys, JoinTree tree,
            LogicalPlan relation, LogicalPlan others) {
        EarlySums sums = new EarlySums();
        List<Expression> required = new ArrayList<>(groups);
        for (Expression result : results) {
            sums.split(result, required);
        }
        for (AggregateExpression function : sums.functions) {
            if (!isMergeable(function)) {
                return null;
            }
            Expression input = Catalyst.first(function.aggregateFunction());
            // Where an outer join has no row of the others, an expression may have a value other than null.
            if (!input.references().subsetOf(others.outputSet())
                    || tree.isOuterSide(relation) && !(summed(input) instanceof AttributeReference)) {
                return null;
            }
            sums.sums.add(Catalyst.alias(function.aggregateFunction().toAggregateExpression(), "sum", NamedExpression$.MODULE$.newExprId()));
        }
        List<Expression> conditions = new ArrayList<>();
        for (LogicalPlan other : tree.relations) {
            if (other != relation && JoinTree.table(other, conditions) == null) {
                return null;
            }
        }
        for (Attribute key : keys) {
            sums.groups.put(key.exprId(), key);
        }
        for (Expression expression : required) {
            for (Attribute column : Catalyst.each(expression.references().toSeq())) {
                if (others.outputSet().contains(column) && !sums.add(column, conditions)) {
                    return null;
                }
            }
        }
        for (Attribute group : sums.groups.values()) {
            if (!isPlain(group.dataType())) {
                return null;
            }
        }
        return sums.functions.isEmpty() ? null : sums;
    }

    /** Adds a column that is not a join key, if the conditions bound the number of its values. */
    private boolean add(Attribute column, List<Expression> conditions) {
        if (groups.containsKey(column.exprId()) || constants.containsKey(column.exprId())) {
            return true;
        }
        for (Expression condition : conditions) {
            boolean isOfColumn = !condition.children().isEmpty() && Catalyst.first(condition) instanceof AttributeReference
                    && ((AttributeReference) Catalyst.first(condition)).exprId().equals(column.exprId());
            if (isOfColumn && Catalyst.name(condition).equals("EqualTo") && Catalyst.last(condition) instanceof Literal) {
                if (!isPlain(column.dataType())) {
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

    private void split(Expression expression, List<Expression> rest) {
        if (expression instanceof AggregateExpression) {
            functions.add((AggregateExpression) expression);
        } else if (expression instanceof AttributeReference) {
            rest.add(expression);
        } else {
            for (Expression child : Catalyst.each(expression.children())) {
                split(child, rest);
            }
        }
    }

    private static boolean isPlain(DataType type) {
        return type instanceof DecimalType || PLAIN.contains(type.catalogString());
    }

    /** Whether partial results of a function merge to its exact result, and no partial result can fail. */
    static boolean isMergeable(AggregateExpression expression) {
        AggregateFunction function = expression.aggregateFunction();
        String name = Catalyst.name(function);
        if (expression.isDistinct() || expression.filter().isDefined() || !expression.mode().toString().equals("Complete")
                || function.children().size() != 1 || !Catalyst.first(function).deterministic()
                || !ExpressionSafety.cannotFail(summed(Catalyst.first(function)))) {
            return false;
        }
        DataType type = Catalyst.first(function).dataType();
        if (name.equals("Sum")) {
            String mode = NumericTypes.overflowMode(function);
            return type instanceof DecimalType ? NumericTypes.isSummedExactly(type) && !mode.equals("TRY")
                    : NumericTypes.isInteger(type) && (mode.equals("LEGACY") || NumericTypes.isSmall(Catalyst.first(function)));
        }
        return name.equals("Count") || (name.equals("Min") || name.equals("Max")) && isPlain(type);
    }

    /** Returns the summed value: Spark sums small decimals by their unscaled values. */
    private static Expression summed(Expression input) {
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
        results.addAll(sums);
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
            Alias sum = (Alias) (Object) sums.get(index);
            return mergedSum(((AggregateExpression) expression).aggregateFunction(), sum.toAttribute());
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(merged(child));
        }
        return Catalyst.withChildren(expression, children);
    }

    private static Expression mergedSum(AggregateFunction function, Attribute sum) {
        if (Catalyst.name(function).equals("Count")) {
            List<Expression> sumOrZero = new ArrayList<>();
            sumOrZero.add(new Sum(sum).toAggregateExpression());
            sumOrZero.add(new Literal(0L, DataTypes.LongType));
            return new Coalesce(PythonUtils.toSeq(sumOrZero));
        }
        Expression same = Catalyst.withChildren(function, Arrays.asList(new Expression[] {sum}));
        Expression merged = ((AggregateFunction) same).toAggregateExpression();
        if (merged.dataType() instanceof DecimalType && !merged.dataType().equals(function.dataType())) {
            boolean isNull = !NumericTypes.overflowMode(function).equals("ANSI");
            Expression checked = new CheckOverflowInSum(merged, (DecimalType) function.dataType(), isNull, null);
            // The check takes null for an overflow; here null means that all values are null.
            return new If(new IsNull(merged), new Literal(null, function.dataType()), checked);
        }
        return merged;
    }

    /** Returns a value under the name and id of a column. */
    static Alias alias(Expression value, NamedExpression column) {
        return new Alias(value, column.name(), column.exprId(), column.qualifier(), Option.apply(column.metadata()),
                Catalyst.<String>none());
    }
}
