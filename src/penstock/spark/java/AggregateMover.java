package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;

/** Finds the joins below which an aggregate can sum up its rows first; see `early_sums`. */
public final class AggregateMover {
    private static final double UNKNOWN = Long.MAX_VALUE / 2;
    private static final List<String> FIELDS = Arrays.asList("groupingExpressions aggregateExpressions child".split(" "));

    /**
     * Returns for each table that can be joined after the sums what is known, the table, the largest of the other tables
     * and the new plan; null if there is no such table.
     */
    public Answer find(Aggregate aggregate) throws Exception {
        List<Expression> groups = new ArrayList<>();
        List<Expression> results = new ArrayList<>();
        for (Object one : Catalyst.each(aggregate.groupingExpressions())) {
            groups.add((Expression) one);
        }
        for (Object one : Catalyst.each(aggregate.aggregateExpressions())) {
            results.add((Expression) one);
        }
        LogicalPlan below = withoutProjections(aggregate.child(), groups, results);
        JoinTree tree = below == null || groups.isEmpty() ? null : JoinTree.of(below);
        if (tree == null || !areSized(tree)) {
            return null;
        }
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        for (Object eachRelation : tree.relations) {
            LogicalPlan relation = (LogicalPlan) eachRelation;
            LogicalPlan table = JoinTree.whole(relation);
            List<Attribute> keys = table == null ? null : tree.keys(relation);
            LogicalPlan others = keys == null || keys.isEmpty() ? null : tree.without(relation);
            EarlySums sums = others == null ? null : EarlySums.of(groups, results, keys, tree, relation, others);
            if (sums == null) {
                continue;
            }
            Map<String, Object> known = new HashMap<>();
            known.put("rows", rows(table));
            known.put("bytes", bytes(table));
            known.put("keys", sums.names());
            known.put("bounds", sums.bounds);
            List<Object> read = new ArrayList<>();
            LogicalPlan largest = null;
            for (Object eachOther : tree.relations) {
                LogicalPlan other = (LogicalPlan) eachOther;
                if (other != relation) {
                    List<Expression> wanted = new ArrayList<>();
                    LogicalPlan one = JoinTree.table(other, wanted);
                    largest = largest == null || rows(one) > rows(largest) ? one : largest;
                    Map<String, Object> other1 = new HashMap<>();
                    other1.put("rows", rows(one));
                    other1.put("conditions", kinds(wanted));
                    read.add(other1);
                }
            }
            known.put("read", read);
            facts.add(known);
            handles.add(table);
            handles.add(largest);
            LogicalPlan first = copied(aggregate, sums.groups(), sums.results(), others);
            handles.add(copied(aggregate, groups, sums.merged(results), tree.joined(first, relation)));
        }
        return facts.isEmpty() ? null : Answer.of(facts, handles);
    }

    /** Returns the kinds of some conditions, and the columns that each is about. */
    private static List<Object> kinds(List<Expression> expressions) {
        List<Object> found = new ArrayList<>();
        for (Object eachOne : expressions) {
            Expression one = (Expression) eachOne;
            List<Object> columns = new ArrayList<>();
            for (Object column : Catalyst.each(one.references().toSeq())) {
                columns.add(Catalyst.id((Attribute) column));
            }
            Map<String, Object> condition = new HashMap<>();
            condition.put("kind", Catalyst.name(one));
            condition.put("columns", columns);
            found.add(condition);
        }
        return found;
    }

    /** Whether Spark knows how large some tables are: to it, one of unknown size is as large as can be. */
    private static boolean areSized(JoinTree tree) {
        for (Object relation : tree.relations) {
            LogicalPlan table = JoinTree.table((LogicalPlan) relation, new ArrayList<>());
            if (table != null && bytes(table) >= UNKNOWN) {
                return false;
            }
        }
        return true;
    }

    /** Returns about how many rows a table has: as Spark's statistics say, else of the size of its files. */
    private static double rows(LogicalPlan table) {
        Statistics known = table.stats();
        return known.rowCount().isDefined() ? Double.parseDouble(String.valueOf(known.rowCount().get()))
                : bytes(table) / Math.max(table.schema().defaultSize(), 1);
    }

    private static double bytes(LogicalPlan table) {
        return table.stats().sizeInBytes().doubleValue();
    }

    private static LogicalPlan copied(Aggregate old, List<?> groups, List<?> results, LogicalPlan child) throws Exception {
        List<Object> values = new ArrayList<>();
        values.add(PythonUtils.toSeq(groups));
        values.add(PythonUtils.toSeq(results));
        values.add(child);
        return (LogicalPlan) new ScalaValues().copied(old, PythonUtils.toSeq(FIELDS), PythonUtils.toSeq(values));
    }

    /** Puts projections into the expressions above them; returns what is below, null if that would change values. */
    private static LogicalPlan withoutProjections(LogicalPlan top, List<Expression> groups, List<Expression> results) {
        LogicalPlan plan = top;
        while (plan instanceof Project) {
            Map<ExprId, Expression> made = new HashMap<>();
            for (Object one : Catalyst.each(((Project) plan).projectList())) {
                if (one instanceof Alias && ((Alias) one).child().deterministic()) {
                    made.put(((Alias) one).exprId(), ((Alias) one).child());
                } else if (!(one instanceof AttributeReference)) {
                    return null;
                }
            }
            for (int i = 0; i < groups.size(); i++) {
                Object group = groups.get(i);
                groups.set(i, replaced((Expression) group, made));
            }
            for (int i = 0; i < results.size(); i++) {
                Object result = results.get(i);
                NamedExpression old = (NamedExpression) result;
                Expression now = replaced((Expression) result, made);
                boolean isSame = now instanceof NamedExpression && ((NamedExpression) now).exprId().equals(old.exprId());
                results.set(i, isSame ? now : EarlySums.alias(now, old));
            }
            plan = ((Project) plan).child();
        }
        return plan;
    }

    private static Expression replaced(Expression one, Map<ExprId, Expression> made) {
        if (one instanceof AttributeReference) {
            Object found = made.get(((AttributeReference) one).exprId());
            return found == null ? one : (Expression) found;
        }
        List<Expression> children = new ArrayList<>();
        for (Object child : Catalyst.each(one.children())) {
            children.add(replaced((Expression) child, made));
        }
        return EarlySums.withChildren(one, children);
    }
}
