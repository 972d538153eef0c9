package penstock;

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

/** Inner joins as one list of what they join, or one outer join, and the same without one of its tables. */
final class JoinTree {
    /** Each table is tried in turn, and each try looks at all joins: of many, that would take seconds. */
    private static final int MOST = 32;

    /** What is joined. */
    final List<LogicalPlan> relations = new ArrayList<>();
    /** What the joins want. */
    final List<Expression> conditions = new ArrayList<>();

    private final Join top;
    private final boolean isInner;

    private JoinTree(Join top) {
        this.top = top;
        this.isInner = is(top, "Inner");
    }

    /** Returns the joins at the top of a plan; null if there are none of a known kind, or a user has said how to join. */
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
            tree.conditions.addAll(parts(join.condition()));
        }
        return tree.relations.isEmpty() || tree.relations.size() > MOST || hasHint(join) ? null : tree;
    }

    private void add(LogicalPlan plan) {
        LogicalPlan inner = plan;
        while (inner instanceof Project && onlyDrops((Project) inner)) {
            inner = ((Project) inner).child();
        }
        if (inner instanceof Join && is((Join) inner, "Inner") && !hasHint((Join) inner)) {
            add(((Join) inner).left());
            add(((Join) inner).right());
            conditions.addAll(parts(((Join) inner).condition()));
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

    /** Whether a projection gives nothing but columns of its input. */
    static boolean onlyDrops(Project project) {
        for (Object one : Catalyst.each(project.projectList())) {
            if (!(one instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    /** Returns the parts of a condition that AND joins. */
    static List<Expression> parts(Option<Expression> condition) {
        List<Expression> found = new ArrayList<>();
        if (condition.isDefined()) {
            Object whole = condition.get();
            split((Expression) whole, found);
        }
        return found;
    }

    static void split(Expression condition, List<Expression> found) {
        if (Catalyst.name(condition).equals("And")) {
            split(Catalyst.first(condition), found);
            split(Catalyst.last(condition), found);
        } else {
            found.add(condition);
        }
    }

    /** Returns the table that a relation reads, null if it is more than that; adds what its rows must meet. */
    static LogicalPlan table(LogicalPlan relation, List<Expression> wanted) {
        LogicalPlan plan = relation;
        while (plan instanceof Project && onlyDrops((Project) plan) || plan instanceof Filter) {
            if (plan instanceof Filter) {
                split(((Filter) plan).condition(), wanted);
            }
            plan = (LogicalPlan) Catalyst.each(plan.children()).get(0);
        }
        return plan.children().isEmpty() ? plan : null;
    }

    /** Returns the table that a relation reads, if it leaves out no rows but those with nulls; else null. */
    static LogicalPlan whole(LogicalPlan relation) {
        List<Expression> wanted = new ArrayList<>();
        LogicalPlan found = table(relation, wanted);
        for (Object eachOne : wanted) {
            Expression one = (Expression) eachOne;
            found = one instanceof IsNotNull ? found : null;
        }
        return found;
    }

    /** Returns the columns of the other relations that are equal to some of one relation's; null if it is joined otherwise. */
    List<Attribute> keys(LogicalPlan relation) {
        AttributeSet own = relation.outputSet();
        List<Attribute> keys = new ArrayList<>();
        for (Object eachCondition : conditions) {
            Expression condition = (Expression) eachCondition;
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

    /** Whether a row of a relation may come without a row of the others. */
    boolean mayMissOthers(LogicalPlan relation) {
        return !isInner && top.left() == relation == is(top, "LeftOuter");
    }

    /** Returns the join of all relations but one; null if nothing else joins some of them, or that may fail. */
    LogicalPlan without(LogicalPlan relation) {
        return isInner ? without(top, relation) : top.left() == relation ? top.right() : top.left();
    }

    private static LogicalPlan without(LogicalPlan plan, LogicalPlan relation) {
        LogicalPlan inner = plan;
        while (inner instanceof Project && onlyDrops((Project) inner)) {
            inner = ((Project) inner).child();
        }
        if (!(inner instanceof Join) || !contains(inner, relation)) {
            return plan;
        }
        Join join = (Join) inner;
        List<Expression> left = new ArrayList<>();
        for (Object eachOne : parts(join.condition())) {
            Expression one = (Expression) eachOne;
            if (!refersTo(one, relation.outputSet())) {
                left.add(one);
                if (!one.deterministic() || !ExpressionSafety.cannotFail(one)) {
                    return null; // it would see rows that the relation leaves out
                }
            }
        }
        if (join.left() == relation || join.right() == relation) {
            return left.isEmpty() ? join.left() == relation ? join.right() : join.left() : null;
        }
        LogicalPlan one = without(join.left(), relation);
        LogicalPlan other = without(join.right(), relation);
        if (one == null || other == null || left.isEmpty()) {
            return null;
        }
        return new Join(one, other, join.joinType(), Option.apply(all(left)), join.hint());
    }

    private static boolean contains(LogicalPlan plan, LogicalPlan wanted) {
        if (plan == wanted) {
            return true;
        }
        for (Object child : Catalyst.each(plan.children())) {
            if (contains((LogicalPlan) child, wanted)) {
                return true;
            }
        }
        return false;
    }

    private static Expression all(List<Expression> conditions) {
        Object first = conditions.get(0);
        Expression found = (Expression) first;
        for (Object eachOne : conditions.subList(1, conditions.size())) {
            Expression one = (Expression) eachOne;
            found = new And(found, one);
        }
        return found;
    }

    /** Returns the join of other rows with one relation, as the relation was joined before. */
    Join joined(LogicalPlan others, LogicalPlan relation) {
        List<Expression> wanted = new ArrayList<>();
        for (Object eachOne : conditions) {
            Expression one = (Expression) eachOne;
            if (refersTo(one, relation.outputSet())) {
                wanted.add(one);
            }
        }
        boolean first = !isInner && top.left() == relation;
        return new Join(first ? relation : others, first ? others : relation, top.joinType(), Option.apply(all(wanted)), top.hint());
    }
}
