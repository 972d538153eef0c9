package penstock.plans;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

import scala.Option;

/** Adjacent inner joins as a flat list of relations, or a single outer join, with and without one of the relations. */
final class JoinTree {
    /** The cost is quadratic, as each relation is tried against all joins: seconds for very many relations. */
    private static final int MAX_RELATIONS = 32;

    /** The joined plans. */
    final List<LogicalPlan> relations = new ArrayList<>();
    /** The conjuncts of the join conditions. */
    final List<Expression> conditions = new ArrayList<>();

    private final Join top;
    private final boolean isInner;

    private JoinTree(Join top) {
        this.top = top;
        this.isInner = is(top, "Inner");
    }

    /** Returns the joins at the top of a plan; null if their type is not supported, or if a join has a hint. */
    static JoinTree of(LogicalPlan plan) {
        if (!(plan instanceof Join)) {
            return null;
        }
        Join join = (Join) plan;
        JoinTree tree = new JoinTree(join);
        if (tree.isInner) {
            tree.add(join);
        } else if (is(join, "LeftOuter") || is(join, "RightOuter")) {
            tree.relations.add(join.left());
            tree.relations.add(join.right());
            tree.conditions.addAll(Catalyst.conjuncts(join.condition()));
        }
        return tree.relations.isEmpty() || tree.relations.size() > MAX_RELATIONS || hasHint(join) ? null : tree;
    }

    private void add(LogicalPlan plan) {
        LogicalPlan inner = plan;
        while (Catalyst.isPruning(inner)) {
            inner = ((Project) inner).child();
        }
        if (inner instanceof Join && is((Join) inner, "Inner") && !hasHint((Join) inner)) {
            add(((Join) inner).left());
            add(((Join) inner).right());
            conditions.addAll(Catalyst.conjuncts(((Join) inner).condition()));
        } else {
            relations.add(plan);
        }
    }

    private static boolean is(Join join, String type) {
        return Catalyst.name(join.joinType()).equals(type);
    }

    private static boolean hasHint(Join join) {
        return join.hint().leftHint().isDefined() || join.hint().rightHint().isDefined();
    }

    /** Returns the table that a relation scans, null for other relations; adds the conjuncts of its filters. */
    static LogicalPlan table(LogicalPlan relation, List<Expression> filters) {
        LogicalPlan plan = relation;
        while (Catalyst.isPruning(plan) || plan instanceof Filter) {
            if (plan instanceof Filter) {
                Catalyst.addConjuncts(((Filter) plan).condition(), filters);
            }
            plan = Catalyst.onlyChild(plan);
        }
        return plan.children().isEmpty() ? plan : null;
    }

    /** Returns the table that a relation scans, if it filters only nulls; else null. */
    static LogicalPlan unfilteredTable(LogicalPlan relation) {
        List<Expression> filters = new ArrayList<>();
        LogicalPlan table = table(relation, filters);
        for (Object filter : filters) {
            table = filter instanceof IsNotNull ? table : null;
        }
        return table;
    }

    /** Returns the columns of other relations that a relation equals in an equi-join; null for other conditions. */
    List<Attribute> keys(LogicalPlan relation) {
        AttributeSet own = relation.outputSet();
        List<Attribute> keys = new ArrayList<>();
        for (Expression condition : conditions) {
            if (refersTo(condition, own)) {
                Expression left = condition instanceof EqualTo ? Catalyst.first(condition) : null;
                Expression right = condition instanceof EqualTo ? Catalyst.last(condition) : null;
                if (!(left instanceof AttributeReference) || !(right instanceof AttributeReference)
                        || own.contains((Attribute) left) == own.contains((Attribute) right)) {
                    return null;
                }
                keys.add((Attribute) (own.contains((Attribute) left) ? right : left));
            } else if (!isInner) {
                return null;
            }
        }
        return keys;
    }

    private static boolean refersTo(Expression expression, AttributeSet columns) {
        return !expression.references().intersect(columns).isEmpty();
    }

    /** Whether the join may return a row of a relation without a match in the others. */
    boolean isOuterSide(LogicalPlan relation) {
        return !isInner && top.left() == relation == is(top, "LeftOuter");
    }

    /** Returns the join of all other relations; null if no condition joins some of them, or if a condition may fail. */
    LogicalPlan without(LogicalPlan relation) {
        return isInner ? without(top, relation) : top.left() == relation ? top.right() : top.left();
    }

    private static LogicalPlan without(LogicalPlan plan, LogicalPlan relation) {
        LogicalPlan inner = plan;
        while (Catalyst.isPruning(inner)) {
            inner = ((Project) inner).child();
        }
        if (!(inner instanceof Join) || !contains(inner, relation)) {
            return plan;
        }
        Join join = (Join) inner;
        List<Expression> remaining = new ArrayList<>();
        for (Expression condition : Catalyst.conjuncts(join.condition())) {
            if (!refersTo(condition, relation.outputSet())) {
                remaining.add(condition);
                if (!condition.deterministic() || !ExpressionSafety.cannotFail(condition)) {
                    return null; // it would see rows that the join with the relation drops
                }
            }
        }
        if (join.left() == relation || join.right() == relation) {
            return remaining.isEmpty() ? join.left() == relation ? join.right() : join.left() : null;
        }
        LogicalPlan left = without(join.left(), relation);
        LogicalPlan right = without(join.right(), relation);
        if (left == null || right == null || remaining.isEmpty()) {
            return null;
        }
        return new Join(left, right, join.joinType(), Option.apply(conjunction(remaining)), join.hint());
    }

    private static boolean contains(LogicalPlan plan, LogicalPlan relation) {
        if (plan == relation) {
            return true;
        }
        for (LogicalPlan child : Catalyst.each(plan.children())) {
            if (contains(child, relation)) {
                return true;
            }
        }
        return false;
    }

    private static Expression conjunction(List<Expression> conditions) {
        Expression conjunction = null;
        for (Expression condition : conditions) {
            conjunction = conjunction == null ? condition : new And(conjunction, condition);
        }
        return conjunction;
    }

    /** Returns the join of other rows with a relation, by the original conditions of that relation. */
    Join joined(LogicalPlan others, LogicalPlan relation) {
        List<Expression> ownConditions = new ArrayList<>();
        for (Expression condition : conditions) {
            if (refersTo(condition, relation.outputSet())) {
                ownConditions.add(condition);
            }
        }
        boolean first = !isInner && top.left() == relation;
        return new Join(first ? relation : others, first ? others : relation, top.joinType(), Option.apply(conjunction(ownConditions)), top.hint());
    }
}
