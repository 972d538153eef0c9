package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;

import scala.Option;

/**
 * Spells expressions in the SQL of DuckDB: only those that are known to give the values that Spark gives.
 *
 * An overflow is an error in DuckDB. The rows are then computed by Spark, so it may be an error or a value there.
 */
final class NativeSql {
    private static final Map<String, Object> OPERATORS = new HashMap<>();

    /** So many values of a list are spelled, as a dynamic filter holds keys; a longer one is not. */
    private static final int LISTED = 10_000;

    /** So long is an expression at most: casts and quotients repeat theirs. DuckDB plans a million in three seconds. */
    private static final int LONGEST = 50_000;

    static {
        put(OPERATORS, "And AND Or OR EqualTo = LessThan < LessThanOrEqual <= GreaterThan > GreaterThanOrEqual >= "
                + "Add + Subtract - Multiply *");
    }

    private NativeSql() {
    }

    /** What is not spelled, and why. */
    static final class Declined extends Exception {
        private static final long serialVersionUID = 1L;

        Declined(String why) {
            super(why);
        }
    }

    private static void put(Map<String, Object> map, String words) {
        String[] found = words.split(" ");
        for (int i = 0; i < found.length; i += 2) {
            map.put(found[i], found[i + 1]);
        }
    }

    /** Returns the name of a column. */
    static String column(AttributeReference column) throws Declined {
        NativeTypes.nameOf(column.dataType());
        return "c" + Catalyst.id(column);
    }

    /** Returns an expression. */
    static String of(Expression one) throws Declined {
        String sql = spelled(one);
        if (sql.length() <= LONGEST) {
            return sql;
        }
        throw new Declined("an expression that is too long");
    }

    private static String spelled(Expression one) throws Declined {
        String type = NativeTypes.nameOf(one.dataType());
        String name = Catalyst.name(one);
        List<?> parts = Catalyst.each(one.children());
        if (one instanceof AttributeReference) {
            return column((AttributeReference) one);
        }
        if (one instanceof Literal) {
            return NativeTypes.literal(((Literal) one).value(), one.dataType());
        }
        if (one instanceof Cast) {
            return NativeCasts.of((Cast) one, part(parts, 0));
        }
        if (one instanceof InSet) {
            return inSet((InSet) one);
        }
        if (one instanceof CaseWhen) {
            return caseWhen((CaseWhen) one);
        }
        if (one instanceof GetStructField) {
            return NativeResults.field((GetStructField) one);
        }
        if (one instanceof ScalarSubquery) {
            return NativeResults.value((ScalarSubquery) one);
        }
        if (one instanceof BinaryArithmetic) {
            return NativeArithmetic.of((BinaryArithmetic) one);
        }
        if (one instanceof And || one instanceof Or) {
            NativeConditions.check(one);
        }
        if (OPERATORS.containsKey(name)) {
            checkOrdered(parts);
            return "(" + part(parts, 0) + " " + OPERATORS.get(name) + " " + part(parts, 1) + ")";
        }
        if (name.equals("Alias") || name.equals("KnownNotNull") || name.equals("KnownNullable")) {
            return part(parts, 0);
        }
        if (name.equals("Not")) {
            return "(NOT " + part(parts, 0) + ")";
        }
        if (name.equals("IsNull") || name.equals("IsNotNull")) {
            // Where a file says that a column has no nulls, DuckDB does not compute what is made of it.
            return "(" + condition((Expression) parts.get(0)) + (name.equals("IsNull") ? " IS NULL)" : " IS NOT NULL)");
        }
        if (name.equals("EqualNullSafe")) {
            checkComparable(parts);
            return "(" + part(parts, 0) + " IS NOT DISTINCT FROM " + part(parts, 1) + ")";
        }
        if (name.equals("In")) {
            NativeConditions.check(one);
            checkComparable(parts);
            return "(" + part(parts, 0) + " IN (" + listed(parts.subList(1, parts.size())) + "))";
        }
        if (name.equals("Coalesce")) {
            checkSameTypes(parts);
            return "coalesce(" + listed(parts) + ")";
        }
        if (name.equals("If")) {
            checkSameTypes(parts.subList(1, 3));
            return "(CASE WHEN " + NativeConditions.of((Expression) parts.get(0)) + " THEN " + part(parts, 1) + " ELSE " + part(parts, 2) + " END)";
        }
        return NativeFunctions.of(one, parts);
    }

    /** Returns the operator of an expression. */
    static String operator(String name) {
        return (String) OPERATORS.get(name);
    }

    /** Checks that two keys of a join can be compared. */
    static void checkKeys(Expression one, Expression other) throws Declined {
        List<Object> keys = new ArrayList<>();
        keys.add(one);
        keys.add(other);
        checkComparable(keys);
        if (!ExpressionSafety.cannotFail(one) || !ExpressionSafety.cannotFail(other)) {
            throw new Declined("a key that may fail");
        }
    }

    /** Returns that two keys of a join are equal. */
    static String equal(Expression one, Expression other) throws Declined {
        checkKeys(one, other);
        return "(" + of(one) + " = " + of(other) + ")";
    }

    /** Returns a condition. DuckDB may ask its parts in another order, or not at all, so none may fail in Spark. */
    static String condition(Expression one) throws Declined {
        if (!ExpressionSafety.cannotFail(NativeResults.withValues(one))) {
            throw new Declined("a condition that may fail");
        }
        return of(one);
    }

    static String part(List<?> parts, int place) throws Declined {
        return of((Expression) parts.get(place));
    }

    static String listed(List<?> parts) throws Declined {
        if (parts.size() > LISTED) {
            throw new Declined("a list of " + parts.size() + " values");
        }
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < parts.size(); i++) {
            found.append(i == 0 ? "" : ", ").append(part(parts, i));
        }
        return found.toString();
    }

    /** Checks that the order of values is known: of floating-point numbers, where no files tell how large they are. */
    private static void checkOrdered(List<?> parts) throws Declined {
        for (Object part : parts) {
            for (Object column : Catalyst.each(((Expression) part).references().toSeq())) {
                if (NativeTypes.isFloating(((Expression) column).dataType())) {
                    checkComparable(parts);
                }
            }
        }
        checkSameTypes(parts);
    }

    /** Checks that values can be compared. What files say of their largest numbers knows nothing of NaN. */
    private static void checkComparable(List<?> parts) throws Declined {
        checkSameTypes(parts);
        if (NativeTypes.isFloating(((Expression) parts.get(0)).dataType())) {
            throw new Declined("a comparison of floating-point numbers");
        }
    }

    static void checkSameTypes(List<?> parts) throws Declined {
        String first = Catalyst.type((Expression) parts.get(0));
        for (Object part : parts) {
            if (!Catalyst.type((Expression) part).equals(first)) {
                throw new Declined("values of different types side by side");
            }
        }
    }

    private static String inSet(InSet in) throws Declined {
        List<Object> values = new ArrayList<>();
        scala.collection.Iterator<?> each = in.hset().iterator();
        while (each.hasNext()) {
            values.add(each.next());
        }
        checkComparable(Catalyst.each(in.children()));
        if (values.size() > LISTED || values.isEmpty()) {
            throw new Declined("a list of " + values.size() + " values");
        }
        StringBuilder found = new StringBuilder("(" + of(in.child()) + " IN (");
        for (int i = 0; i < values.size(); i++) {
            found.append(i == 0 ? "" : ", ").append(NativeTypes.literal(values.get(i), in.child().dataType()));
        }
        return found.append("))").toString();
    }

    private static String caseWhen(CaseWhen one) throws Declined {
        List<Object> values = new ArrayList<>();
        StringBuilder found = new StringBuilder("(CASE");
        for (Object each : Catalyst.each(one.branches())) {
            scala.Tuple2<?, ?> branch = (scala.Tuple2<?, ?>) each;
            found.append(" WHEN ").append(NativeConditions.of((Expression) branch._1())).append(" THEN ").append(of((Expression) branch._2()));
            values.add(branch._2());
        }
        Option<?> other = one.elseValue();
        if (other.isDefined()) {
            values.add(other.get());
            found.append(" ELSE ").append(of((Expression) other.get()));
        }
        checkSameTypes(values);
        return found.append(" END)").toString();
    }
}
