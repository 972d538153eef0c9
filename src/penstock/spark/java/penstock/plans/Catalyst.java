package penstock.plans;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Accessors of plans and expressions, shared by the other classes. */
public final class Catalyst {
    public static <T> List<T> each(Seq<T> sequence) {
        return CollectionConverters.asJava(sequence);
    }

    public static LogicalPlan onlyChild(LogicalPlan plan) {
        return (LogicalPlan) (Object) plan.children().head();
    }

    public static SparkPlan onlyChild(SparkPlan plan) {
        return (SparkPlan) (Object) plan.children().head();
    }

    /** Returns the children of a plan and the plans of its subqueries. */
    public static List<LogicalPlan> childrenAndSubqueries(LogicalPlan plan) {
        List<LogicalPlan> plans = new ArrayList<>(each(plan.children()));
        plans.addAll(each(plan.subqueries()));
        return plans;
    }

    /** Returns a plan and all plans below it in pre-order, without subqueries. */
    public static <T extends TreeNode<T>> List<T> nodes(T plan) {
        List<T> nodes = new ArrayList<>();
        nodes.add(plan);
        for (T child : each(plan.children())) {
            nodes.addAll(nodes(child));
        }
        return nodes;
    }

    /** Returns a plan, all plans below it, and those of their subqueries. */
    public static List<LogicalPlan> withSubqueries(LogicalPlan plan) {
        List<LogicalPlan> plans = new ArrayList<>();
        plans.add(plan);
        for (LogicalPlan child : childrenAndSubqueries(plan)) {
            plans.addAll(withSubqueries(child));
        }
        return plans;
    }

    /** Returns expressions and all expressions in them in pre-order. */
    public static List<Expression> parts(Seq<?> expressions) {
        List<Expression> parts = new ArrayList<>();
        for (Object expression : each(expressions)) {
            parts.add((Expression) expression);
            parts.addAll(parts(((Expression) expression).children()));
        }
        return parts;
    }

    /** Returns the position of a column among expressions, -1 if it is not one of them. */
    public static int indexOf(Object column, List<?> expressions) {
        for (int i = 0; column instanceof Attribute && i < expressions.size(); i++) {
            Object expression = expressions.get(i);
            if (expression instanceof Attribute && ((Attribute) expression).exprId().equals(((Attribute) column).exprId())) {
                return i;
            }
        }
        return -1;
    }

    public static Set<String> words(String text) {
        return new HashSet<>(Arrays.asList(text.split(" ")));
    }

    /** Returns a map from the words of a text, which are keys and values in turn. */
    public static Map<String, Object> pairs(String text) {
        String[] words = text.split(" ");
        Map<String, Object> pairs = new HashMap<>();
        for (int i = 0; i < words.length; i += 2) {
            pairs.put(words[i], words[i + 1]);
        }
        return pairs;
    }

    /** Returns a plan with other children; the plan itself if there are none. */
    public static LogicalPlan withChildren(LogicalPlan plan, List<LogicalPlan> children) {
        return children.isEmpty() ? plan : (LogicalPlan) (Object) plan.withNewChildren(PythonUtils.toSeq(children));
    }

    /** Returns an expression with other children; the expression itself if there are none. */
    public static Expression withChildren(Expression expression, List<Expression> children) {
        return children.isEmpty() ? expression : (Expression) (Object) expression.withNewChildren(PythonUtils.toSeq(children));
    }

    public static Alias alias(Expression value, String name, ExprId id) {
        return new Alias(value, name, id, Catalyst.<String>emptySeq(), Option.empty(), Catalyst.<String>emptySeq());
    }

    /** Returns the relation of a plan that scans files, null for other plans. */
    public static HadoopFsRelation fileRelation(Object plan) {
        Object relation = plan instanceof LogicalRelation ? ((LogicalRelation) plan).relation() : null;
        return relation instanceof HadoopFsRelation ? (HadoopFsRelation) relation : null;
    }

    public static <T> Seq<T> emptySeq() {
        return PythonUtils.toSeq(Collections.<T>emptyList());
    }

    public static <T> Seq<T> seq(T element) {
        return PythonUtils.toSeq(Collections.<T>singletonList(element));
    }

    /** Whether a plan is a projection that only drops or reorders columns. */
    public static boolean isPruning(LogicalPlan plan) {
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
    public static void addConjuncts(Expression condition, List<Expression> conjuncts) {
        if (condition instanceof And) {
            addConjuncts(first(condition), conjuncts);
            addConjuncts(last(condition), conjuncts);
        } else {
            conjuncts.add(condition);
        }
    }

    /** Returns the conjuncts of a condition; none if it is not defined. */
    public static List<Expression> conjuncts(Option<?> condition) {
        List<Expression> conjuncts = new ArrayList<>();
        if (condition.isDefined()) {
            addConjuncts((Expression) condition.get(), conjuncts);
        }
        return conjuncts;
    }

    /** Returns the name of a plan or expression, as `jvm.class_name` does. */
    public static String name(Object node) {
        return node instanceof Product ? ((Product) node).productPrefix() : node.getClass().getSimpleName();
    }

    /** Returns the id that identifies a column in Python. */
    public static String id(Attribute column) {
        return String.valueOf(column.exprId().id());
    }

    /** Returns the ids that identify columns in Python. */
    public static List<Object> ids(Seq<? extends Attribute> columns) {
        List<Object> ids = new ArrayList<>();
        for (Attribute column : each(columns)) {
            ids.add(id(column));
        }
        return ids;
    }

    public static List<Object> names(Seq<? extends Attribute> columns) {
        List<Object> names = new ArrayList<>();
        for (Attribute column : each(columns)) {
            names.add(column.name());
        }
        return names;
    }

    /** Returns the type of an expression, as SQL spells it. */
    public static String type(Expression expression) {
        return expression.dataType().catalogString();
    }

    public static Expression first(Expression expression) {
        return (Expression) (Object) expression.children().head();
    }

    public static Expression last(Expression expression) {
        return (Expression) (Object) expression.children().last();
    }
}
