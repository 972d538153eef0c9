package penstock;

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
import org.apache.spark.sql.types.Metadata;

import scala.Option;

/** The functions of an aggregate in two steps: what is summed up before a join, and what is made of these sums after it. */
final class EarlySums {
    /** Types of which equal values are the same value. */
    private static final List<String> PLAIN = Arrays.asList(
            "boolean tinyint smallint int bigint date timestamp timestamp_ntz string binary".split(" "));
    /** Digits of decimals whose sum has all the room that Spark gives a sum: then no sum of a part is lost. */
    private static final int MOST_DIGITS = DecimalType.MAX_PRECISION() - 10;

    /** By how many times the columns that are no keys make the groups more. */
    final List<Object> bounds = new ArrayList<>();

    private final Map<ExprId, Attribute> groups = new LinkedHashMap<>();
    private final Map<ExprId, Expression> constants = new LinkedHashMap<>();
    private final List<AggregateExpression> functions = new ArrayList<>();
    private final List<Alias> sums = new ArrayList<>();

    private EarlySums() {
    }

    /** Returns the sums of all rows but those of a relation; null if some are not known to come out the same. */
    static EarlySums of(List<Expression> groups, List<Expression> results, List<Attribute> keys, JoinTree tree,
            LogicalPlan relation, LogicalPlan others) {
        EarlySums found = new EarlySums();
        List<Expression> wanted = new ArrayList<>(groups);
        for (Object eachOne : results) {
            Expression one = (Expression) eachOne;
            found.split(one, wanted);
        }
        for (Object eachOne : found.functions) {
            AggregateExpression one = (AggregateExpression) eachOne;
            if (!isSummedInSteps(one)) {
                return null;
            }
            Expression input = Catalyst.first(one.aggregateFunction());
            // Where the others have no row, an expression may be something else than null.
            if (!input.references().subsetOf(others.outputSet())
                    || tree.mayMissOthers(relation) && !(summed(input) instanceof AttributeReference)) {
                return null;
            }
            found.sums.add(alias(one.aggregateFunction().toAggregateExpression(), "sum", NamedExpression$.MODULE$.newExprId()));
        }
        List<Expression> conditions = new ArrayList<>();
        for (Object eachOther : tree.relations) {
            LogicalPlan other = (LogicalPlan) eachOther;
            if (other != relation && JoinTree.table(other, conditions) == null) {
                return null;
            }
        }
        for (Object eachKey : keys) {
            Attribute key = (Attribute) eachKey;
            found.groups.put(key.exprId(), key);
        }
        for (Object eachOne : wanted) {
            Expression one = (Expression) eachOne;
            for (Object column : Catalyst.each(one.references().toSeq())) {
                if (others.outputSet().contains((Attribute) column) && !found.add((Attribute) column, conditions)) {
                    return null;
                }
            }
        }
        for (Object eachOne : found.groups.values()) {
            Attribute one = (Attribute) eachOne;
            if (!isPlain(one.dataType())) {
                return null;
            }
        }
        return found.functions.isEmpty() ? null : found;
    }

    /** Adds a column that is no key of the join, if the rows' conditions bound how many values it has. */
    private boolean add(Attribute column, List<Expression> conditions) {
        if (groups.containsKey(column.exprId()) || constants.containsKey(column.exprId())) {
            return true;
        }
        for (Object eachOne : conditions) {
            Expression one = (Expression) eachOne;
            boolean isOfColumn = !one.children().isEmpty() && Catalyst.first(one) instanceof AttributeReference
                    && ((AttributeReference) Catalyst.first(one)).exprId().equals(column.exprId());
            if (isOfColumn && Catalyst.name(one).equals("EqualTo") && Catalyst.last(one) instanceof Literal) {
                if (!isPlain(column.dataType())) {
                    return false;
                }
                constants.put(column.exprId(), alias(Catalyst.last(one), column));
                return true;
            }
            if (isOfColumn && Catalyst.name(one).equals("In")) {
                groups.put(column.exprId(), column);
                bounds.add(one.children().size() - 1);
                return true;
            }
        }
        return false;
    }

    private void split(Expression one, List<Expression> rest) {
        if (one instanceof AggregateExpression) {
            functions.add((AggregateExpression) one);
        } else if (one instanceof AttributeReference) {
            rest.add(one);
        } else {
            for (Object child : Catalyst.each(one.children())) {
                split((Expression) child, rest);
            }
        }
    }

    private static boolean isPlain(DataType type) {
        return type instanceof DecimalType || PLAIN.contains(type.catalogString());
    }

    /** Whether a function of some rows is the same as one of what it gives of parts of them, and cannot fail for any part. */
    static boolean isSummedInSteps(AggregateExpression one) {
        AggregateFunction function = one.aggregateFunction();
        String name = Catalyst.name(function);
        if (one.isDistinct() || one.filter().isDefined() || !one.mode().toString().equals("Complete")
                || function.children().size() != 1 || !Catalyst.first(function).deterministic()
                || !ExpressionSafety.cannotFail(summed(Catalyst.first(function)))) {
            return false;
        }
        DataType type = Catalyst.first(function).dataType();
        if (name.equals("Sum")) {
            String mode = NativeTypes.mode(function);
            return type instanceof DecimalType ? ((DecimalType) type).precision() <= MOST_DIGITS && !mode.equals("TRY")
                    : NativeTypes.isWhole(type) && (mode.equals("LEGACY") || NativeTypes.isSmall(Catalyst.first(function)));
        }
        return name.equals("Count") || (name.equals("Min") || name.equals("Max")) && isPlain(type);
    }

    /** Returns what is summed up: of small decimals, Spark sums up the digits. */
    private static Expression summed(Expression input) {
        return Catalyst.name(input).equals("UnscaledValue") ? Catalyst.first(input) : input;
    }

    List<Object> names() {
        List<Object> names = new ArrayList<>();
        for (Object eachOne : groups.values()) {
            Attribute one = (Attribute) eachOne;
            names.add(one.name());
        }
        return names;
    }

    /** Returns what rows are grouped by before the join. */
    List<Object> groups() {
        return new ArrayList<>(groups.values());
    }

    /** Returns what is known of each of these groups. */
    List<Object> results() {
        List<Object> found = new ArrayList<>(groups.values());
        found.addAll(constants.values());
        found.addAll(sums);
        return found;
    }

    /** Returns the aggregate's own results, made of the sums. */
    List<Object> merged(List<Expression> results) {
        List<Object> found = new ArrayList<>();
        for (Object eachOne : results) {
            Expression one = (Expression) eachOne;
            found.add(merged(one));
        }
        return found;
    }

    private Expression merged(Expression one) {
        int place = functions.indexOf(one);
        if (place >= 0) {
            Object sum = sums.get(place);
            return ofSums(((AggregateExpression) one).aggregateFunction(), ((Alias) sum).toAttribute());
        }
        List<Expression> children = new ArrayList<>();
        for (Object child : Catalyst.each(one.children())) {
            children.add(merged((Expression) child));
        }
        return withChildren(one, children);
    }

    private static Expression ofSums(AggregateFunction function, Attribute sum) {
        if (Catalyst.name(function).equals("Count")) {
            List<Expression> either = new ArrayList<>();
            either.add(new Sum(sum).toAggregateExpression());
            either.add(new Literal(0L, DataTypes.LongType));
            return new Coalesce(PythonUtils.toSeq(either));
        }
        Object same = withChildren(function, Arrays.asList(new Expression[] {sum}));
        Expression all = ((AggregateFunction) same).toAggregateExpression();
        if (all.dataType() instanceof DecimalType && !all.dataType().equals(function.dataType())) {
            boolean isNull = !NativeTypes.mode(function).equals("ANSI");
            Expression checked = new CheckOverflowInSum(all, (DecimalType) function.dataType(), isNull, null);
            // To the check, null is a sum that has overflowed; here it is one of nulls alone.
            return new If(new IsNull(all), new Literal(null, function.dataType()), checked);
        }
        return all;
    }

    /** Returns a value that takes the place of a column. */
    static Alias alias(Expression value, NamedExpression column) {
        return new Alias(value, column.name(), column.exprId(), column.qualifier(), Option.apply(column.metadata()),
                Catalyst.<String>none());
    }

    private static Alias alias(Expression value, String name, ExprId id) {
        return new Alias(value, name, id, Catalyst.<String>none(), Option.<Metadata>empty(), Catalyst.<String>none());
    }

    /** Returns an expression of other parts. */
    static Expression withChildren(Expression one, List<Expression> children) {
        Object made = children.isEmpty() ? one : one.withNewChildren(PythonUtils.toSeq(children));
        return (Expression) made;
    }
}
