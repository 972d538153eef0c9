package penstock.duckdb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.Size;

import scala.Option;
import scala.collection.immutable.Seq;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.JsonFields;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/**
 * Translates expressions to DuckDB's SQL: only those that return the same values as in Spark.
 *
 * An overflow is an error in DuckDB. Spark then computes all rows, with its own result of an overflow.
 */
final class NativeSql {
    /** Maximum values of an IN list, the same as the maximum keys of a dynamic filter. */
    private static final int MAX_LIST_VALUES = 10_000;
    /** Maximum characters of an expression: casts and quotients repeat their operands. Planning a million takes 3 s. */
    private static final int MAX_CHARACTERS = 100_000;

    static String column(Attribute column) throws Declined {
        NativeTypes.nameOf(column.dataType());
        return "c" + Catalyst.id(column);
    }

    /** Returns a value, which may be a struct or an array: an operator above may read its fields or elements. */
    private static String valueOrNested(Expression expression) throws Declined {
        return JsonFields.areNested(expression.dataType()) ? NativeJson.of(expression) : of(expression);
    }

    /** Returns values with the names of their columns; `groupBy().applyInPandas` selects its keys twice. */
    static String selectList(Seq<NamedExpression> expressions) throws Declined {
        List<String> names = new ArrayList<>();
        StringBuilder columns = new StringBuilder();
        for (Object element : Catalyst.each(expressions)) {
            names.add(NativeParts.distinctName("c" + ((NamedExpression) element).exprId().id(), names));
            columns.append(columns.length() == 0 ? "" : ", ").append(valueOrNested((Expression) element)).append(" AS ").append(names.get(names.size() - 1));
        }
        return columns.length() == 0 ? "1 AS nothing" : columns.toString();
    }

    /** Checks that the sides of a join have columns, and none in common. */
    static void checkSides(Seq<Attribute> left, Seq<Attribute> right) throws Declined {
        List<?> leftNames = names(left);
        if (left.isEmpty() || right.isEmpty()) {
            throw new Declined("a plan without columns");
        }
        for (Object name : names(right)) {
            if (leftNames.contains(name)) {
                throw new Declined("a join whose sides have a column in common");
            }
        }
    }

    private static List<String> names(Seq<Attribute> columns) throws Declined {
        List<String> names = new ArrayList<>();
        for (Attribute column : Catalyst.each(columns)) {
            names.add(valueOrNested(column));
        }
        return names;
    }

    static String columns(Seq<Attribute> columns) throws Declined {
        return String.join(", ", names(columns));
    }

    static String of(Expression expression) throws Declined {
        String sql = translate(expression);
        if (sql.length() <= MAX_CHARACTERS) {
            return sql;
        }
        throw new Declined("an expression that is too long");
    }

    private static String translate(Expression expression) throws Declined {
        NativeTypes.nameOf(expression.dataType());
        String name = Catalyst.name(expression);
        List<?> children = Catalyst.each(expression.children());
        NativeTemplates.checkIncluded(expression);
        if (expression instanceof AttributeReference) {
            return column((AttributeReference) expression);
        }
        if (expression instanceof Literal) {
            return NativeTypes.literal(((Literal) expression).value(), expression.dataType());
        }
        if (expression instanceof And || expression instanceof Or || expression instanceof In) {
            NativeConditions.check(expression);
        }
        String sql = NativeTemplates.of(expression);
        sql = sql == null ? NativeTimes.of(expression) : sql;
        if (sql != null) {
            return sql;
        }
        if (expression instanceof Cast) {
            return NativeCasts.of((Cast) expression, at(children, 0));
        }
        if (expression instanceof InSet) {
            return inSet((InSet) expression);
        }
        if (expression instanceof In) {
            checkSameTypes(children);
            return "(" + at(children, 0) + " IN (" + list(children.subList(1, children.size()), ", ") + "))";
        }
        if (expression instanceof CaseWhen) {
            return caseWhen((CaseWhen) expression);
        }
        if (expression instanceof GetStructField) {
            GetStructField field = (GetStructField) expression;
            return field.child() instanceof ScalarSubquery ? NativeResults.field(field) : NativeJson.field(field);
        }
        if (expression instanceof ScalarSubquery) {
            return NativeResults.value((ScalarSubquery) expression);
        }
        if (expression instanceof BinaryArithmetic) {
            return NativeArithmetic.of((BinaryArithmetic) expression);
        }
        if (name.equals("IsNull") || name.equals("IsNotNull")) {
            // If a file's statistics exclude nulls of a column, DuckDB does not evaluate expressions of the column.
            Expression value = (Expression) children.get(0);
            return "(" + (JsonFields.areNested(value.dataType()) ? valueOrNested(value) : condition(value)) + (name.equals("IsNull") ? " IS NULL)" : " IS NOT NULL)");
        }
        if (expression instanceof If) {
            checkSameTypes(children.subList(1, 3));
            return "(CASE WHEN " + NativeConditions.of((Expression) children.get(0)) + " THEN " + at(children, 1) + " ELSE " + at(children, 2) + " END)";
        }
        if (expression instanceof Like) {
            return NativeConditions.like((Like) expression);
        }
        if (expression instanceof Size) {
            return NativeJson.size((Size) expression);
        }
        sql = NativeDecimals.conversion(expression);
        if (name.equals("BloomFilterMightContain")) { // without it, DuckDB would compute groups that a join drops
            throw new Declined("a Bloom filter of the keys of another table");
        }
        if (sql == null) {
            throw new Declined("expression " + name);
        }
        return sql;
    }

    static void checkKeys(Expression left, Expression right) throws Declined {
        checkSameTypes(Arrays.<Object>asList(left, right));
        if (!ExpressionSafety.cannotFail(left) || !ExpressionSafety.cannotFail(right)) {
            throw new Declined("a key that may fail");
        }
    }

    static String equal(Expression left, Expression right) throws Declined {
        checkKeys(left, right);
        return "(" + of(left) + " = " + of(right) + ")";
    }

    /** Returns a condition; declines a condition that may fail, as DuckDB may reorder or skip its operands. */
    static String condition(Expression expression) throws Declined {
        if (!ExpressionSafety.cannotFail(NativeResults.withoutSubqueries(expression))) {
            throw new Declined("a condition that may fail");
        }
        return of(expression);
    }

    /** Translates an element of a list of expressions. */
    static String at(List<?> expressions, int index) throws Declined {
        return of((Expression) expressions.get(index));
    }

    static String list(List<?> expressions, String separator) throws Declined {
        if (expressions.size() > MAX_LIST_VALUES) {
            throw new Declined("a list of " + expressions.size() + " values");
        }
        StringBuilder sql = new StringBuilder();
        for (int i = 0; i < expressions.size(); i++) {
            sql.append(i == 0 ? "" : separator).append(at(expressions, i));
        }
        return sql.toString();
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
        List<?> values = Catalyst.each(in.hset().toSeq());
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
        for (scala.Tuple2<?, ?> branch : Catalyst.each(expression.branches())) {
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
