package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Small questions about plans and expressions, for the other classes. */
final class Catalyst {
    private Catalyst() {
    }

    /** Returns the elements of a sequence. */
    static List<?> each(Seq<?> sequence) {
        return CollectionConverters.asJava(sequence);
    }

    /** Returns the child of a plan that has one. */
    static LogicalPlan onlyChild(LogicalPlan plan) {
        return (LogicalPlan) each(plan.children()).get(0);
    }

    /** Returns the plans right below one, those of its subqueries included. */
    static List<?> below(LogicalPlan plan) {
        List<Object> found = new ArrayList<>(each(plan.children()));
        found.addAll(each(plan.subqueries()));
        return found;
    }

    /** Returns a sequence of nothing. */
    static <T> Seq<T> none() {
        return PythonUtils.toSeq(Collections.<T>emptyList());
    }

    /** Returns a sequence of one. */
    static <T> Seq<T> seq(T one) {
        return PythonUtils.toSeq(Collections.<T>singletonList(one));
    }

    /** Returns the name of a plan or expression, as `jvm.class_name` does. */
    static String name(Object thing) {
        return thing instanceof Product ? ((Product) thing).productPrefix() : thing.getClass().getSimpleName();
    }

    /** Returns the id by which Python knows a column. */
    static String id(Attribute column) {
        return String.valueOf(column.exprId().id());
    }

    /** Returns the type of an expression, as SQL spells it. */
    static String type(Expression expression) {
        return expression.dataType().catalogString();
    }

    /** Returns the first part of an expression. */
    static Expression first(Expression expression) {
        Seq<?> parts = expression.children();
        return (Expression) parts.head();
    }

    /** Returns the last part of an expression. */
    static Expression last(Expression expression) {
        Seq<?> parts = expression.children();
        return (Expression) parts.last();
    }
}
