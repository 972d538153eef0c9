package penstock.plans;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.DecimalAddNoOverflowCheck;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.Greatest;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Least;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SparkPartitionID;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.execution.window.WindowExec;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

import scala.Product;
import scala.collection.immutable.Seq;

import penstock.bridge.ScalaValues;

/**
 * Window functions over consecutive chunks of rows in the window's order. Rows with equal window keys are a *group*.
 * The first group of a chunk may continue a group of earlier chunks, whose totals are then carried over.
 */
public final class WindowChunks {
    /** Returns the result expressions of an aggregate by the window's keys: keys, total per function, row count. */
    public Seq<Object> totals(WindowExec window) {
        List<Object> totals = new ArrayList<>(Catalyst.each(window.partitionSpec()));
        for (Object column : Catalyst.each(window.windowExpression())) {
            totals.add(total((Expression) column, window));
        }
        totals.add(count(new Literal(1, DataTypes.IntegerType), false));
        return PythonUtils.toSeq(totals);
    }

    private static Expression total(Expression alias, WindowExec window) {
        WindowExpression windowFunction = WindowFunctions.of(alias);
        Expression function = windowFunction.windowFunction();
        if (function instanceof AggregateExpression) {
            Expression aggregate = ((AggregateExpression) function).aggregateFunction().toAggregateExpression();
            Expression value = Catalyst.first(alias); // the window function, or a MakeDecimal of it
            return value == windowFunction ? aggregate : Catalyst.withChildren(value, Arrays.asList(new Expression[] {aggregate}));
        }
        if (!Catalyst.name(function).equals("DenseRank")) {
            return count(new Literal(1, DataTypes.IntegerType), false);
        }
        List<Expression> order = new ArrayList<>();
        for (Expression key : Catalyst.each(window.orderSpec())) {
            order.add(Catalyst.first(key));
        }
        return count(structOf(PythonUtils.toSeq(order)), true); // a struct is never null, so that nulls count
    }

    private static Expression count(Expression argument, boolean distinct) {
        AggregateFunction count = new Count(Catalyst.<Expression>seq(argument));
        return distinct ? count.toAggregateExpression(true, scala.Option.<Expression>empty()) : count.toAggregateExpression();
    }

    public static Expression structOf(Seq<?> parts) {
        List<Expression> named = new ArrayList<>();
        for (int i = 0; i < parts.size(); i++) {
            named.add(new Literal(UTF8String.fromString("c" + i), DataTypes.StringType));
            named.add((Expression) parts.apply(i));
        }
        return new CreateNamedStruct(PythonUtils.toSeq(named));
    }

    /**
     * Returns the columns of a window over chunks, with the carried totals. `ends` has a row for each chunk: the keys
     * and totals of its first group, those of its last group, and its number of rows; nulls for a chunk without rows.
     */
    public Seq<Object> continued(WindowExec window, Object ends) throws IllegalAccessException, InvocationTargetException {
        Object[] chunks = (Object[]) ends;
        List<?> keys = Catalyst.each(window.partitionSpec());
        List<?> functions = Catalyst.each(window.windowExpression());
        Object[][] firstKeys = new Object[keys.size()][chunks.length];
        Object[][] carriedTotals = new Object[functions.size()][chunks.length];
        InternalRow previousGroup = null;
        Object[] previousTotals = new Object[functions.size()];
        for (int i = 0; i < chunks.length; i++) {
            InternalRow row = (InternalRow) chunks[i];
            if (row.isNullAt(0)) {
                continue;
            }
            InternalRow firstGroup = row.getStruct(0, keys.size() + functions.size());
            InternalRow lastGroup = row.getStruct(1, keys.size() + functions.size());
            boolean continuesGroup = previousGroup != null && isSameGroup(keys, previousGroup, firstGroup);
            boolean isSingleGroup = isSameGroup(keys, firstGroup, lastGroup);
            for (int k = 0; k < keys.size(); k++) {
                firstKeys[k][i] = firstGroup.get(k, ((Expression) keys.get(k)).dataType());
            }
            for (int f = 0; f < functions.size(); f++) {
                Expression alias = (Expression) functions.get(f);
                DataType type = typeOfTotal(alias);
                Object total = lastGroup.get(keys.size() + f, type);
                carriedTotals[f][i] = continuesGroup ? previousTotals[f] : null;
                previousTotals[f] = continuesGroup && isSingleGroup
                        ? merged(alias, new Literal(previousTotals[f], type), new Literal(total, type)).eval(null)
                        : total;
            }
            previousGroup = lastGroup;
        }
        Expression isOfFirstGroup = null;
        for (int k = 0; k < keys.size(); k++) {
            Expression key = (Expression) keys.get(k);
            Expression isSameKey = new EqualNullSafe(key, ofChunk(firstKeys[k], key.dataType()));
            isOfFirstGroup = isOfFirstGroup == null ? isSameKey : new And(isOfFirstGroup, isSameKey);
        }
        List<Object> columns = new ArrayList<>(Catalyst.each(window.child().output()));
        for (int f = 0; f < functions.size(); f++) {
            NamedExpression alias = (NamedExpression) functions.get(f);
            Attribute own = alias.toAttribute();
            Expression carriedTotal = ofChunk(asResults(carriedTotals[f], own.dataType()), own.dataType());
            columns.add(JoinPreAggregation.alias(new If(isOfFirstGroup, merged((Expression) alias, carriedTotal, own), own), own));
        }
        return PythonUtils.toSeq(columns);
    }

    private static boolean isSameGroup(List<?> keys, InternalRow left, InternalRow right) {
        for (int k = 0; k < keys.size(); k++) {
            DataType type = ((Expression) keys.get(k)).dataType();
            Object same = new EqualNullSafe(new Literal(left.get(k, type), type), new Literal(right.get(k, type), type)).eval(null);
            if (!same.equals(Boolean.TRUE)) {
                return false;
            }
        }
        return true;
    }

    /** Returns the type of a function's carried total: a long for the rows that a row number or rank counts. */
    private static DataType typeOfTotal(Expression alias) {
        boolean isAggregate = WindowFunctions.of(alias).windowFunction() instanceof AggregateExpression;
        return isAggregate ? alias.dataType() : DataTypes.LongType;
    }

    /** Converts carried values to the type of a window function; an overflow fails or wraps around, as in Spark. */
    private static Object[] asResults(Object[] carried, DataType type) {
        Object[] results = new Object[carried.length];
        for (int i = 0; i < results.length; i++) {
            results[i] = carried[i];
            if (carried[i] != null && type.equals(DataTypes.IntegerType) && carried[i] instanceof Long) {
                long rows = ((Long) carried[i]).longValue();
                results[i] = Integer.valueOf(SQLConf.get().ansiEnabled() ? Math.toIntExact(rows) : (int) rows);
            }
        }
        return results;
    }

    /** Returns the element of a list for the current chunk. */
    private static Expression ofChunk(Object[] values, DataType type) {
        Expression all = new Literal(new GenericArrayData(values), new ArrayType(type, true));
        return new GetArrayItem(all, new SparkPartitionID(), false); // each partition is a chunk
    }

    /** Returns the merge of a carried value and the chunk's own value; null if both are null. */
    private static Expression merged(Expression alias, Expression carried, Expression own)
            throws IllegalAccessException, InvocationTargetException {
        Expression function = WindowFunctions.of(alias).windowFunction();
        Object aggregated = function instanceof AggregateExpression ? ((AggregateExpression) function).aggregateFunction() : function;
        String name = Catalyst.name(aggregated);
        Seq<Expression> both = PythonUtils.toSeq(Arrays.asList(new Expression[] {carried, own}));
        if (name.equals("Min")) {
            return new Least(both);
        }
        if (name.equals("Max")) {
            return new Greatest(both);
        }
        Expression sum;
        if (own.dataType() instanceof DecimalType) {
            sum = new DecimalAddNoOverflowCheck(carried, own, own.dataType());
        } else {
            Add add = new Add(carried, own);
            // The Add gets the overflow mode of a Sum; for other functions, it retains its own.
            Object mode = name.equals("Sum") ? ((Product) aggregated).productElement(1) : add.productElement(2);
            sum = (Expression) new ScalaValues().copied(add, Catalyst.seq(add.productElementName(2)), Catalyst.seq(mode));
        }
        return new Coalesce(PythonUtils.toSeq(Arrays.asList(new Expression[] {sum, own, carried})));
    }
}
