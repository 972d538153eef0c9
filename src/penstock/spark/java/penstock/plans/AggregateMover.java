package penstock.plans;

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

import penstock.bridge.Answer;
import penstock.bridge.ScalaValues;

/** Pushes a partial aggregate below joins (eager aggregation); see `pre_aggregation`. */
public final class AggregateMover {
    private static final double UNKNOWN_BYTES = Long.MAX_VALUE / 2; // Spark estimates Long.MAX_VALUE without statistics
    private static final List<String> FIELDS = Arrays.asList("groupingExpressions aggregateExpressions child".split(" ")); // of Aggregate

    /**
     * Returns, for each table that can be joined after a partial aggregate of the other tables: facts, the table, the
     * largest of the other tables (by rows), and the new plan. Returns null if there is no such table.
     */
    public Answer find(Aggregate aggregate) throws Exception {
        List<Expression> groups = new ArrayList<>(Catalyst.each(aggregate.groupingExpressions()));
        List<Expression> results = new ArrayList<>();
        for (Object result : Catalyst.each(aggregate.aggregateExpressions())) {
            results.add((Expression) result);
        }
        LogicalPlan below = inlineProjections(aggregate.child(), groups, results);
        JoinTree tree = below == null || groups.isEmpty() ? null : JoinTree.of(below);
        if (tree == null || !areSized(tree)) {
            return null;
        }
        List<Object> candidates = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        for (LogicalPlan relation : tree.relations) {
            LogicalPlan table = JoinTree.unfilteredTable(relation);
            List<Attribute> keys = table == null ? null : tree.keys(relation);
            LogicalPlan others = keys == null || keys.isEmpty() ? null : tree.without(relation);
            JoinPreAggregation preAggregation = others == null ? null
                    : JoinPreAggregation.of(groups, results, keys, tree, relation, others);
            if (preAggregation == null) {
                continue;
            }
            Map<String, Object> facts = Answer.facts("rows", rows(table), "bytes", bytes(table),
                    "keys", preAggregation.names(), "bounds", preAggregation.bounds);
            List<Object> inputs = new ArrayList<>();
            LogicalPlan largest = null;
            for (LogicalPlan other : tree.relations) {
                if (other != relation) {
                    List<Expression> conditions = new ArrayList<>();
                    LogicalPlan otherTable = JoinTree.table(other, conditions);
                    largest = largest == null || rows(otherTable) > rows(largest) ? otherTable : largest;
                    inputs.add(Answer.facts("rows", rows(otherTable), "conditions", conditionFacts(conditions)));
                }
            }
            facts.put("read", inputs);
            candidates.add(facts);
            handles.add(table);
            handles.add(largest);
            LogicalPlan partial = copied(aggregate, preAggregation.groups(), preAggregation.results(), others);
            handles.add(copied(aggregate, groups, preAggregation.merged(results), tree.joined(partial, relation)));
        }
        return candidates.isEmpty() ? null : Answer.of(candidates, handles);
    }

    /** Returns the kind and the columns of each condition. */
    private static List<Object> conditionFacts(List<Expression> conditions) {
        List<Object> facts = new ArrayList<>();
        for (Expression condition : conditions) {
            facts.add(Answer.facts("kind", Catalyst.name(condition), "columns", Catalyst.ids(condition.references().toSeq())));
        }
        return facts;
    }

    /** Whether Spark has a size estimate for each table: without an estimate, Spark assumes the largest size. */
    private static boolean areSized(JoinTree tree) {
        for (LogicalPlan relation : tree.relations) {
            LogicalPlan table = JoinTree.table(relation, new ArrayList<>());
            if (table != null && bytes(table) >= UNKNOWN_BYTES) {
                return false;
            }
        }
        return true;
    }

    /** Returns the estimated rows of a table: from Spark's statistics, or else from its estimated size. */
    private static double rows(LogicalPlan table) {
        Statistics statistics = table.stats();
        return statistics.rowCount().isDefined() ? Double.parseDouble(String.valueOf(statistics.rowCount().get()))
                : bytes(table) / Math.max(table.schema().defaultSize(), 1);
    }

    private static double bytes(LogicalPlan table) {
        return table.stats().sizeInBytes().doubleValue();
    }

    private static LogicalPlan copied(Aggregate original, List<?> groups, List<?> results, LogicalPlan child)
            throws Exception {
        ScalaValues values = new ScalaValues();
        return (LogicalPlan) values.copied(original, PythonUtils.toSeq(FIELDS),
                values.seq(PythonUtils.toSeq(groups), PythonUtils.toSeq(results), child));
    }

    /** Inlines projections into `groups` and `results`; returns the plan below, null if that would change values. */
    private static LogicalPlan inlineProjections(LogicalPlan top, List<Expression> groups, List<Expression> results) {
        LogicalPlan plan = top;
        while (plan instanceof Project) {
            Map<ExprId, Expression> aliases = new HashMap<>();
            for (Object column : Catalyst.each(((Project) plan).projectList())) {
                if (column instanceof Alias && ((Alias) column).child().deterministic()) {
                    aliases.put(((Alias) column).exprId(), ((Alias) column).child());
                } else if (!(column instanceof AttributeReference)) {
                    return null;
                }
            }
            for (int i = 0; i < groups.size(); i++) {
                Object group = groups.get(i);
                groups.set(i, inline((Expression) group, aliases));
            }
            for (int i = 0; i < results.size(); i++) {
                Object result = results.get(i);
                NamedExpression column = (NamedExpression) result;
                Expression inlined = inline((Expression) result, aliases);
                boolean hasSameId = inlined instanceof NamedExpression
                        && ((NamedExpression) inlined).exprId().equals(column.exprId());
                results.set(i, hasSameId ? inlined : JoinPreAggregation.alias(inlined, column));
            }
            plan = ((Project) plan).child();
        }
        return plan;
    }

    private static Expression inline(Expression expression, Map<ExprId, Expression> aliases) {
        if (expression instanceof AttributeReference) {
            Object aliased = aliases.get(((AttributeReference) expression).exprId());
            return aliased == null ? expression : (Expression) aliased;
        }
        List<Expression> children = new ArrayList<>();
        for (Expression child : Catalyst.each(expression.children())) {
            children.add(inline(child, aliases));
        }
        return Catalyst.withChildren(expression, children);
    }
}
