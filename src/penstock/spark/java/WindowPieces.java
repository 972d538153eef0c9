package penstock;

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

/**
 * Window functions over pieces of rows that follow each other in the window's order. The first group of a piece may
 * continue a group of earlier pieces: what is carried over to it are these pieces' totals of the group.
 */
public final class WindowPieces {
    /** Returns what the rows of a piece are summed up to: the window's keys, a group's total of each function, and its rows. */
    public Seq<Object> totals(WindowExec window) {
        List<Object> found = new ArrayList<>(Catalyst.each(window.partitionSpec()));
        for (Object one : Catalyst.each(window.windowExpression())) {
            found.add(total((Expression) one, window));
        }
        found.add(count(new Literal(1, DataTypes.IntegerType), false));
        return PythonUtils.toSeq(found);
    }

    private static Expression total(Expression alias, WindowExec window) {
        WindowExpression own = WindowFunctions.of(alias);
        Expression function = own.windowFunction();
        if (function instanceof AggregateExpression) {
            Expression all = ((AggregateExpression) function).aggregateFunction().toAggregateExpression();
            Expression made = Catalyst.first(alias);
            return made == own ? all : EarlySums.withChildren(made, Arrays.asList(new Expression[] {all}));
        }
        if (!Catalyst.name(function).equals("DenseRank")) {
            return count(new Literal(1, DataTypes.IntegerType), false);
        }
        List<Expression> order = new ArrayList<>();
        for (Object one : Catalyst.each(window.orderSpec())) {
            order.add(Catalyst.first((Expression) one));
        }
        return count(struct(order), true); // a struct is not null, so that nulls count
    }

    private static Expression count(Expression what, boolean distinct) {
        AggregateFunction count = new Count(Catalyst.<Expression>seq(what));
        return distinct ? count.toAggregateExpression(true, scala.Option.<Expression>empty()) : count.toAggregateExpression();
    }

    /** Returns one value of several. */
    public Expression structOf(Seq<?> parts) {
        List<Expression> found = new ArrayList<>();
        for (Object one : Catalyst.each(parts)) {
            found.add((Expression) one);
        }
        return struct(found);
    }

    private static Expression struct(List<Expression> parts) {
        List<Expression> named = new ArrayList<>();
        for (int i = 0; i < parts.size(); i++) {
            named.add(new Literal(UTF8String.fromString("c" + i), DataTypes.StringType));
            Object part = parts.get(i);
            named.add((Expression) part);
        }
        return new CreateNamedStruct(PythonUtils.toSeq(named));
    }

    /**
     * Returns the columns of a window over pieces, continued from piece to piece.
     *
     * @param ends for each piece, the first and the last of its groups' totals; nulls of a piece without rows
     */
    public Seq<Object> continued(WindowExec window, Object ends) throws IllegalAccessException, InvocationTargetException {
        Object[] pieces = (Object[]) ends;
        List<?> keys = Catalyst.each(window.partitionSpec());
        List<?> functions = Catalyst.each(window.windowExpression());
        Object[][] first = new Object[keys.size()][pieces.length];
        Object[][] carried = new Object[functions.size()][pieces.length];
        InternalRow reached = null;
        Object[] carry = new Object[functions.size()];
        for (int i = 0; i < pieces.length; i++) {
            InternalRow row = (InternalRow) pieces[i];
            if (row.isNullAt(0)) {
                continue;
            }
            InternalRow start = row.getStruct(0, keys.size() + functions.size());
            InternalRow end = row.getStruct(1, keys.size() + functions.size());
            boolean goesOn = reached != null && isSameGroup(keys, reached, start);
            boolean isOneGroup = isSameGroup(keys, start, end);
            for (int k = 0; k < keys.size(); k++) {
                first[k][i] = start.get(k, ((Expression) keys.get(k)).dataType());
            }
            for (int f = 0; f < functions.size(); f++) {
                Expression alias = (Expression) functions.get(f);
                DataType type = typeOfTotal(alias);
                Object total = end.get(keys.size() + f, type);
                carried[f][i] = goesOn ? carry[f] : null;
                carry[f] = goesOn && isOneGroup
                        ? after(alias, new Literal(carry[f], type), new Literal(total, type)).eval(null)
                        : total;
            }
            reached = end;
        }
        Expression isFirst = null;
        for (int k = 0; k < keys.size(); k++) {
            Expression key = (Expression) keys.get(k);
            Expression same = new EqualNullSafe(key, ofPiece(first[k], key.dataType()));
            isFirst = isFirst == null ? same : new And(isFirst, same);
        }
        List<Object> columns = new ArrayList<>();
        for (Object one : Catalyst.each(window.child().output())) {
            columns.add(one);
        }
        for (int f = 0; f < functions.size(); f++) {
            NamedExpression alias = (NamedExpression) functions.get(f);
            Attribute own = alias.toAttribute();
            Expression before = ofPiece(asResults(carried[f], own.dataType()), own.dataType());
            columns.add(EarlySums.alias(new If(isFirst, after((Expression) alias, before, own), own), own));
        }
        return PythonUtils.toSeq(columns);
    }

    private static boolean isSameGroup(List<?> keys, InternalRow one, InternalRow other) {
        for (int k = 0; k < keys.size(); k++) {
            DataType type = ((Expression) keys.get(k)).dataType();
            Object same = new EqualNullSafe(new Literal(one.get(k, type), type), new Literal(other.get(k, type), type)).eval(null);
            if (!same.equals(Boolean.TRUE)) {
                return false;
            }
        }
        return true;
    }

    /** Returns the type of what is carried of a function: the rows that a row number or rank counts are a long integer. */
    private static DataType typeOfTotal(Expression alias) {
        boolean sums = WindowFunctions.of(alias).windowFunction() instanceof AggregateExpression;
        return sums ? alias.dataType() : DataTypes.LongType;
    }

    /** Returns carried values as a window function's own type; one that does not fit fails as Spark's would. */
    private static Object[] asResults(Object[] carried, DataType type) {
        Object[] found = new Object[carried.length];
        for (int i = 0; i < found.length; i++) {
            found[i] = carried[i];
            if (carried[i] != null && type.equals(DataTypes.IntegerType) && carried[i] instanceof Long) {
                long rows = ((Long) carried[i]).longValue();
                found[i] = Integer.valueOf(SQLConf.get().ansiEnabled() ? Math.toIntExact(rows) : (int) rows);
            }
        }
        return found;
    }

    /** Returns the value that a list has for the piece that is read. */
    private static Expression ofPiece(Object[] values, DataType type) {
        Expression all = new Literal(new GenericArrayData(values), new ArrayType(type, true));
        return new GetArrayItem(all, new SparkPartitionID(), false);
    }

    /** Returns what a function gives after other rows of the group; null if there are none, or nothing but nulls. */
    private static Expression after(Expression alias, Expression carried, Expression own)
            throws IllegalAccessException, InvocationTargetException {
        Expression function = WindowFunctions.of(alias).windowFunction();
        Object summed = function instanceof AggregateExpression ? ((AggregateExpression) function).aggregateFunction() : function;
        String name = Catalyst.name(summed);
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
            Object mode = name.equals("Sum") ? ((Product) summed).productElement(1) : add.productElement(2);
            Object made = new ScalaValues().copied(add, Catalyst.seq(add.productElementName(2)), Catalyst.seq(mode));
            sum = (Expression) made;
        }
        return new Coalesce(PythonUtils.toSeq(Arrays.asList(new Expression[] {sum, own, carried})));
    }
}
