package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Accessors of plans and expressions, shared by the other classes. */
final class Catalyst {
    private Catalyst() {
    }

    /** Returns the elements of a sequence. */
    static List<?> each(Seq<?> sequence) {
        return CollectionConverters.asJava(sequence);
    }

    /** Returns the only child of a plan. */
    static LogicalPlan onlyChild(LogicalPlan plan) {
        return (LogicalPlan) each(plan.children()).get(0);
    }

    /** Returns the children of a plan and the plans of its subqueries. */
    static List<?> below(LogicalPlan plan) {
        List<Object> plans = new ArrayList<>(each(plan.children()));
        plans.addAll(each(plan.subqueries()));
        return plans;
    }

    /** Returns an empty sequence. */
    static <T> Seq<T> none() {
        return PythonUtils.toSeq(Collections.<T>emptyList());
    }

    /** Returns a sequence of a single element. */
    static <T> Seq<T> seq(T element) {
        return PythonUtils.toSeq(Collections.<T>singletonList(element));
    }

    /** Whether a plan is a projection that only drops or reorders columns. */
    static boolean isPruning(LogicalPlan plan) {
        if (!(plan instanceof Project)) {
            return false;
        }
        for (Object column : each(((Project) plan).projectList())) {
            if (!(column instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    /** Adds the conjuncts of a condition: the parts that AND connects. */
    static void addConjuncts(Expression condition, List<Expression> conjuncts) {
        if (condition instanceof And) {
            addConjuncts(first(condition), conjuncts);
            addConjuncts(last(condition), conjuncts);
        } else {
            conjuncts.add(condition);
        }
    }

    /** Returns the name of a plan or expression, as `jvm.class_name` does. */
    static String name(Object node) {
        return node instanceof Product ? ((Product) node).productPrefix() : node.getClass().getSimpleName();
    }

    /** Returns the id that identifies a column in Python. */
    static String id(Attribute column) {
        return String.valueOf(column.exprId().id());
    }

    /** Returns the type of an expression, as SQL spells it. */
    static String type(Expression expression) {
        return expression.dataType().catalogString();
    }

    /** Returns the first child of an expression. */
    static Expression first(Expression expression) {
        Seq<?> children = expression.children();
        return (Expression) children.head();
    }

    /** Returns the last child of an expression. */
    static Expression last(Expression expression) {
        Seq<?> children = expression.children();
        return (Expression) children.last();
    }
}
