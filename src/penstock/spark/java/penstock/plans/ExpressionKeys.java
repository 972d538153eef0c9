package penstock.plans;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.WeakHashMap;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;

import scala.collection.immutable.Seq;

/**
 * Keys of expressions: keys of deterministic expressions are equal if and only if their canonical forms are equal.
 *
 * Spark's text of an expression is ambiguous: it elides long argument lists, prints string literals without quotes, and
 * omits the plans of subqueries. So a key is the text with a number, and equal expressions (`canonicalized`, `equals`)
 * share a number. A number is valid as long as an expression with this number is reachable: each such expression refers to
 * the canonical expression of the number. Numbers are never reused.
 */
public final class ExpressionKeys {
    private static final Map<Object, Object> NUMBERS = new WeakHashMap<>(); // by canonical expression
    private static final TreeNodeTag<Object> BY_POSITION = new TreeNodeTag<Object>("penstock.by-position");
    private static final TreeNodeTag<Object> CANONICAL = new TreeNodeTag<Object>("penstock.canonical");
    /** The JVM id of an ExprId whose number is the position of an input column; columns have the id of a real JVM. */
    private static final UUID NO_JVM = new UUID(0, 0);
    private static long lastNumber;

    /** A number and the canonical expression that it identifies. */
    private static final class Numbered {
        final long number;
        final WeakReference<Object> canonical;

        Numbered(long number, Object canonical) {
            this.number = number;
            this.canonical = new WeakReference<>(canonical);
        }
    }

    /** Returns the key of an expression: its id for a column, a new key for a nondeterministic expression. */
    public static String of(Expression expression) {
        Expression canonical = expression.canonicalized();
        return canonical instanceof AttributeReference ? canonical.toString() : canonical + "~" + number(expression, canonical);
    }

    /** Returns the key of an expression in which input columns are identified by their position. */
    public String byPosition(Expression expression, Seq<Attribute> input) {
        List<Object> ids = new ArrayList<>();
        for (Attribute column : Catalyst.each(input)) {
            ids.add(column.exprId());
        }
        Expression normalized = normalized(expression, ids);
        expression.setTagValue(BY_POSITION, normalized); // so that the number of `normalized` remains valid
        return of(normalized);
    }

    private static Expression normalized(Expression expression, List<Object> ids) {
        if (expression instanceof AttributeReference) {
            int position = ids.indexOf(((AttributeReference) expression).exprId());
            return position < 0 ? expression : ((AttributeReference) expression).withExprId(new ExprId(position, NO_JVM));
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(normalized(child, ids));
        }
        return Catalyst.withChildren(expression, children);
    }

    private static synchronized long number(Expression expression, Expression canonical) {
        Numbered numbered = canonical.deterministic() ? (Numbered) NUMBERS.get(canonical) : null;
        Object representative = numbered == null ? null : numbered.canonical.get();
        if (representative == null) { // unknown, or just garbage-collected
            numbered = new Numbered(++lastNumber, canonical);
            representative = canonical;
            NUMBERS.put(canonical, numbered);
        }
        expression.setTagValue(CANONICAL, representative);
        return numbered.number;
    }
}
