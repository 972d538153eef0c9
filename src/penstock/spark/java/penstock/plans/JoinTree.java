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

/** Adjacent inner joins as a flat list of relations, or a single outer join; can leave out one of the relations. */
final class JoinTree {
    /** Limits the quadratic cost of trying each relation against all joins: seconds for very many relations. */
    private static final int MAX_RELATIONS = 32;

    /** The joined plans. */
    final List<LogicalPlan> relations = new ArrayList<>();
    /** The conjuncts of the join conditions. */
    final List<Expression> conditions = new ArrayList<>();

    private final Join top;
    private final boolean isInner;

    private JoinTree(Join top) {
        this.top = top;
        this.isInner = hasType(top, "Inner");
    }

    /** Returns the joins at the top of a plan; null for a hint at the top, another type, or more than MAX_RELATIONS. */
    static JoinTree of(LogicalPlan plan) {
        if (!(plan instanceof Join)) {
            return null;
        }
        Join join = (Join) plan;
        JoinTree tree = new JoinTree(join);
        if (tree.isInner) {
            tree.add(join);
        } else if (hasType(join, "LeftOuter") || hasType(join, "RightOuter")) {
            tree.relations.add(join.left());
            tree.relations.add(join.right());
            tree.conditions.addAll(Catalyst.conjuncts(join.condition()));
        }
        return tree.relations.isEmpty() || tree.relations.size() > MAX_RELATIONS || hasHint(join) ? null : tree;
    }

    private void add(LogicalPlan plan) {
        LogicalPlan unpruned = plan;
        while (Catalyst.isPruning(unpruned)) {
            unpruned = ((Project) unpruned).child();
        }
        if (unpruned instanceof Join && hasType((Join) unpruned, "Inner") && !hasHint((Join) unpruned)) {
            add(((Join) unpruned).left());
            add(((Join) unpruned).right());
            conditions.addAll(Catalyst.conjuncts(((Join) unpruned).condition()));
        } else {
            relations.add(plan);
        }
    }

    private static boolean hasType(Join join, String type) {
        return Catalyst.name(join.joinType()).equals(type);
    }

    private static boolean hasHint(Join join) {
        return join.hint().leftHint().isDefined() || join.hint().rightHint().isDefined();
    }

    /** Returns the table that a relation scans, null for other relations; adds its filters as conjuncts. */
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

    /** Returns the table that a relation scans; null for other relations, and for filters other than IS NOT NULL. */
    static LogicalPlan unfilteredTable(LogicalPlan relation) {
        List<Expression> filters = new ArrayList<>();
        LogicalPlan table = table(relation, filters);
        for (Object filter : filters) {
            table = filter instanceof IsNotNull ? table : null;
        }
        return table;
    }

    /** Returns the columns of other relations that must equal columns of a relation; null with other conditions. */
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

    /** Whether the join may return a row of a relation that has no match in the other relations. */
    boolean isOuterSide(LogicalPlan relation) {
        boolean isLeft = top.left() == relation;
        return !isInner && isLeft == hasType(top, "LeftOuter");
    }

    /** Returns the join of all other relations; null if some would lack a condition, or a remaining one may fail. */
    LogicalPlan without(LogicalPlan relation) {
        return isInner ? without(top, relation) : top.left() == relation ? top.right() : top.left();
    }

    private static LogicalPlan without(LogicalPlan plan, LogicalPlan relation) {
        LogicalPlan unpruned = plan;
        while (Catalyst.isPruning(unpruned)) {
            unpruned = ((Project) unpruned).child();
        }
        if (!(unpruned instanceof Join) || !contains(unpruned, relation)) {
            return plan;
        }
        Join join = (Join) unpruned;
        List<Expression> remaining = new ArrayList<>();
        for (Expression condition : Catalyst.conjuncts(join.condition())) {
            if (!refersTo(condition, relation.outputSet())) {
                remaining.add(condition);
                if (!condition.deterministic() || !ExpressionSafety.cannotFail(condition)) {
                    return null; // the condition may fail on rows that the join with the relation drops
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

    /** Returns the join of a plan with a relation, by the conditions of this tree that refer to the relation. */
    Join joined(LogicalPlan others, LogicalPlan relation) {
        List<Expression> ownConditions = new ArrayList<>();
        for (Expression condition : conditions) {
            if (refersTo(condition, relation.outputSet())) {
                ownConditions.add(condition);
            }
        }
        boolean isLeft = !isInner && top.left() == relation;
        return new Join(isLeft ? relation : others, isLeft ? others : relation, top.joinType(), Option.apply(conjunction(ownConditions)), top.hint());
    }
}
