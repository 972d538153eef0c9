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
 * Translates expressions to DuckDB's SQL: only those that return the same values as in Spark.
 *
 * An overflow is an error in DuckDB. Spark then computes the rows, with its own result of an overflow.
 */
final class NativeSql {
    private static final Map<String, Object> OPERATORS = new HashMap<>();

    /** Maximum values of an IN list, the same as the maximum keys of a dynamic filter. */
    private static final int MAX_LIST_VALUES = 10_000;

    /** Maximum characters of an expression: casts and quotients repeat their operands. DuckDB plans a million in 3 seconds. */
    private static final int MAX_CHARACTERS = 50_000;

    static {
        put(OPERATORS, "And AND Or OR EqualTo = LessThan < LessThanOrEqual <= GreaterThan > GreaterThanOrEqual >= "
                + "Add + Subtract - Multiply *");
    }

    private NativeSql() {
    }

    /** Thrown if an expression or plan is not supported, with the reason. */
    static final class Declined extends Exception {
        private static final long serialVersionUID = 1L;

        Declined(String reason) {
            super(reason);
        }
    }

    private static void put(Map<String, Object> map, String text) {
        String[] pairs = text.split(" ");
        for (int i = 0; i < pairs.length; i += 2) {
            map.put(pairs[i], pairs[i + 1]);
        }
    }

    /** Returns the name of a column. */
    static String column(AttributeReference column) throws Declined {
        NativeTypes.nameOf(column.dataType());
        return "c" + Catalyst.id(column);
    }

    /** Translates an expression. */
    static String of(Expression expression) throws Declined {
        String sql = translate(expression);
        if (sql.length() <= MAX_CHARACTERS) {
            return sql;
        }
        throw new Declined("an expression that is too long");
    }

    private static String translate(Expression expression) throws Declined {
        String type = NativeTypes.nameOf(expression.dataType());
        String name = Catalyst.name(expression);
        List<?> children = Catalyst.each(expression.children());
        if (expression instanceof AttributeReference) {
            return column((AttributeReference) expression);
        }
        if (expression instanceof Literal) {
            return NativeTypes.literal(((Literal) expression).value(), expression.dataType());
        }
        if (expression instanceof Cast) {
            return NativeCasts.of((Cast) expression, at(children, 0));
        }
        if (expression instanceof InSet) {
            return inSet((InSet) expression);
        }
        if (expression instanceof CaseWhen) {
            return caseWhen((CaseWhen) expression);
        }
        if (expression instanceof GetStructField) {
            return NativeResults.field((GetStructField) expression);
        }
        if (expression instanceof ScalarSubquery) {
            return NativeResults.value((ScalarSubquery) expression);
        }
        if (expression instanceof BinaryArithmetic) {
            return NativeArithmetic.of((BinaryArithmetic) expression);
        }
        if (expression instanceof And || expression instanceof Or) {
            NativeConditions.check(expression);
        }
        if (OPERATORS.containsKey(name)) {
            checkOrdered(children);
            return "(" + at(children, 0) + " " + OPERATORS.get(name) + " " + at(children, 1) + ")";
        }
        if (name.equals("Alias") || name.equals("KnownNotNull") || name.equals("KnownNullable")) {
            return at(children, 0);
        }
        if (name.equals("Not")) {
            return "(NOT " + at(children, 0) + ")";
        }
        if (name.equals("IsNull") || name.equals("IsNotNull")) {
            // If a file's statistics exclude nulls of a column, DuckDB skips evaluating expressions of it.
            return "(" + condition((Expression) children.get(0)) + (name.equals("IsNull") ? " IS NULL)" : " IS NOT NULL)");
        }
        if (name.equals("EqualNullSafe")) {
            checkComparable(children);
            return "(" + at(children, 0) + " IS NOT DISTINCT FROM " + at(children, 1) + ")";
        }
        if (name.equals("In")) {
            NativeConditions.check(expression);
            checkComparable(children);
            return "(" + at(children, 0) + " IN (" + list(children.subList(1, children.size())) + "))";
        }
        if (name.equals("Coalesce")) {
            checkSameTypes(children);
            return "coalesce(" + list(children) + ")";
        }
        if (name.equals("If")) {
            checkSameTypes(children.subList(1, 3));
            return "(CASE WHEN " + NativeConditions.of((Expression) children.get(0)) + " THEN " + at(children, 1) + " ELSE " + at(children, 2) + " END)";
        }
        return NativeFunctions.of(expression, children);
    }

    /** Returns the operator of an expression. */
    static String operator(String name) {
        return (String) OPERATORS.get(name);
    }

    /** Checks that two keys of a join can be compared. */
    static void checkKeys(Expression left, Expression right) throws Declined {
        List<Object> keys = new ArrayList<>();
        keys.add(left);
        keys.add(right);
        checkComparable(keys);
        if (!ExpressionSafety.cannotFail(left) || !ExpressionSafety.cannotFail(right)) {
            throw new Declined("a key that may fail");
        }
    }

    /** Returns the equality of two join keys. */
    static String equal(Expression left, Expression right) throws Declined {
        checkKeys(left, right);
        return "(" + of(left) + " = " + of(right) + ")";
    }

    /** Returns a condition that cannot fail in Spark: DuckDB may reorder or skip its operands. */
    static String condition(Expression expression) throws Declined {
        if (!ExpressionSafety.cannotFail(NativeResults.withoutSubqueries(expression))) {
            throw new Declined("a condition that may fail");
        }
        return of(expression);
    }

    static String at(List<?> expressions, int index) throws Declined {
        return of((Expression) expressions.get(index));
    }

    static String list(List<?> expressions) throws Declined {
        if (expressions.size() > MAX_LIST_VALUES) {
            throw new Declined("a list of " + expressions.size() + " values");
        }
        StringBuilder sql = new StringBuilder();
        for (int i = 0; i < expressions.size(); i++) {
            sql.append(i == 0 ? "" : ", ").append(at(expressions, i));
        }
        return sql.toString();
    }

    /** Checks that values can be ordered. Floating-point values must not refer to floating-point columns, which have file statistics. */
    private static void checkOrdered(List<?> values) throws Declined {
        for (Object value : values) {
            for (Object column : Catalyst.each(((Expression) value).references().toSeq())) {
                if (NativeTypes.isFloating(((Expression) column).dataType())) {
                    checkComparable(values);
                }
            }
        }
        checkSameTypes(values);
    }

    /** Checks that values can be compared. Floating-point values cannot, as file statistics ignore NaN. */
    private static void checkComparable(List<?> values) throws Declined {
        checkSameTypes(values);
        if (NativeTypes.isFloating(((Expression) values.get(0)).dataType())) {
            throw new Declined("a comparison of floating-point numbers");
        }
    }

    static void checkSameTypes(List<?> values) throws Declined {
        String first = Catalyst.type((Expression) values.get(0));
        for (Object value : values) {
            if (!Catalyst.type((Expression) value).equals(first)) {
                throw new Declined("values of different types");
            }
        }
    }

    private static String inSet(InSet in) throws Declined {
        List<Object> values = new ArrayList<>();
        scala.collection.Iterator<?> iterator = in.hset().iterator();
        while (iterator.hasNext()) {
            values.add(iterator.next());
        }
        checkComparable(Catalyst.each(in.children()));
        if (values.size() > MAX_LIST_VALUES || values.isEmpty()) {
            throw new Declined("a list of " + values.size() + " values");
        }
        StringBuilder sql = new StringBuilder("(" + of(in.child()) + " IN (");
        for (int i = 0; i < values.size(); i++) {
            sql.append(i == 0 ? "" : ", ").append(NativeTypes.literal(values.get(i), in.child().dataType()));
        }
        return sql.append("))").toString();
    }

    private static String caseWhen(CaseWhen expression) throws Declined {
        List<Object> values = new ArrayList<>();
        StringBuilder sql = new StringBuilder("(CASE");
        for (Object element : Catalyst.each(expression.branches())) {
            scala.Tuple2<?, ?> branch = (scala.Tuple2<?, ?>) element;
            sql.append(" WHEN ").append(NativeConditions.of((Expression) branch._1())).append(" THEN ").append(of((Expression) branch._2()));
            values.add(branch._2());
        }
        Option<?> elseValue = expression.elseValue();
        if (elseValue.isDefined()) {
            values.add(elseValue.get());
            sql.append(" ELSE ").append(of((Expression) elseValue.get()));
        }
        checkSameTypes(values);
        return sql.append(" END)").toString();
    }
}
