package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.MapInPandas;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.Option;
import scala.collection.immutable.Seq;

/** Reads the properties of a logical plan's nodes; see `plans.read_plan`. */
public final class PlanReader {
    /** Maximum columns in the description of a node. */
    private static final int DESCRIBED_COLUMNS = 25;

    /** Returns the facts of all nodes of a plan in pre-order, and the nodes. */
    public Answer read(LogicalPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> nodes = new ArrayList<>();
        visit(plan, facts, nodes);
        return Answer.of(facts, nodes);
    }

    /** Returns an expression as SQL. */
    public Object sql(Expression expression) {
        return Answer.ofText(expression.sql());
    }

    private static void visit(LogicalPlan plan, List<Object> facts, List<Object> nodes) {
        facts.add(facts(plan));
        nodes.add(plan);
        for (Object input : inputs(plan)) {
            visit((LogicalPlan) input, facts, nodes);
        }
    }

    /** Returns the inputs of a plan; a recursion counts as a leaf, as its inputs are meaningless outside of it. */
    private static List<?> inputs(LogicalPlan plan) {
        return Catalyst.name(plan).equals("UnionLoop") ? Collections.emptyList() : Catalyst.each(plan.children());
    }

    private static Map<String, Object> facts(LogicalPlan plan) {
        Map<String, Object> facts = new HashMap<>();
        List<Object> ids = new ArrayList<>();
        List<Object> keys = new ArrayList<>();
        for (Object column : Catalyst.each(plan.output())) {
            ids.add(Catalyst.id((Attribute) column));
            keys.add(ExpressionKeys.of((Attribute) column));
        }
        List<Object> references = new ArrayList<>();
        Map<String, Object> aliases = new HashMap<>();
        for (Object column : Catalyst.each(plan.references().toSeq())) {
            String id = Catalyst.id((Attribute) column);
            Seq<?> qualifier = ((Attribute) column).qualifier();
            references.add(id);
            if (qualifier.nonEmpty()) {
                aliases.put(id, qualifier.last());
            }
        }
        FunctionNames functions = new FunctionNames(plan);
        facts.put("name", Catalyst.name(plan));
        facts.put("children", inputs(plan).size());
        facts.put("ids", ids);
        facts.put("keys", keys);
        facts.put("references", references);
        facts.put("aliases", aliases);
        facts.put("description", plan.simpleString(DESCRIBED_COLUMNS));
        facts.put("is_deterministic", plan.deterministic());
        facts.put("cannot_fail", ExpressionSafety.cannotFail(plan.expressions()));
        facts.put("functions", functions.aggregates);
        facts.put("unstable", functions.unstable);
        facts.put("python_functions", functions.python);
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
            facts.put("files", FileRelations.facts((LogicalRelation) plan, relation));
            facts.put("partition_columns", Arrays.asList(relation.partitionSchema().fieldNames()));
        } else if (plan instanceof HiveTableRelation) {
            List<Object> columns = new ArrayList<>();
            for (Object column : Catalyst.each(((HiveTableRelation) plan).partitionCols())) {
                columns.add(((Attribute) column).name());
            }
            facts.put("partition_columns", columns);
        } else if (plan instanceof Sort) {
            facts.put("sort", sort((Sort) plan));
        } else if (plan instanceof MapInPandas) {
            facts.put("is_barrier", ((MapInPandas) plan).isBarrier());
        } else if (plan instanceof MapInArrow) {
            facts.put("is_barrier", ((MapInArrow) plan).isBarrier());
        } else if (plan instanceof Repartition) {
            facts.put("repartition", repartition(((Repartition) plan).shuffle(), ((Repartition) plan).numPartitions()));
        } else if (plan instanceof RepartitionByExpression) {
            Option<?> partitions = ((RepartitionByExpression) plan).optNumPartitions();
            facts.put("repartition", repartition(true, partitions.isDefined() ? partitions.get() : null));
        } else if (plan instanceof Filter) {
            facts.put("only_not_null", isOnlyNotNull(((Filter) plan).condition()));
        } else if (plan instanceof Project) {
            putNames(facts, Catalyst.each(((Project) plan).projectList()));
        } else if (plan instanceof Aggregate) {
            putNames(facts, Catalyst.each(((Aggregate) plan).aggregateExpressions()));
            facts.put("is_generated_hash_aggregate", isGeneratedHashAggregate((Aggregate) plan));
        }
        return facts;
    }

    /** Whether Spark runs an aggregate as a hash aggregate in generated code, which evaluates results lazily. */
    static boolean isGeneratedHashAggregate(Aggregate aggregate) {
        List<Attribute> buffers = new ArrayList<>();
        return aggregate.groupingExpressions().nonEmpty() && areGenerated(aggregate.aggregateExpressions(), buffers)
                && Aggregate$.MODULE$.supportsHashAggregate(PythonUtils.toSeq(buffers), aggregate.groupingExpressions());
    }

    /** Whether all aggregate functions in the expressions support code generation; adds the columns of their buffers. */
    private static boolean areGenerated(Seq<?> expressions, List<Attribute> buffers) {
        for (Object element : Catalyst.each(expressions)) {
            Expression expression = (Expression) element;
            if (expression instanceof AggregateFunction && !(expression instanceof DeclarativeAggregate)) { // Python functions have no buffer
                return false;
            }
            if (expression instanceof AggregateFunction) {
                for (Object column : Catalyst.each(((AggregateFunction) expression).aggBufferAttributes())) {
                    buffers.add((Attribute) column);
                }
            }
            if (!areGenerated(expression.children(), buffers)) {
                return false;
            }
        }
        return true;
    }

    private static Map<String, Object> sort(Sort sort) {
        List<Object> order = new ArrayList<>();
        for (Object key : Catalyst.each(sort.order())) {
            order.add(key.toString());
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("is_global", sort.global());
        facts.put("order", order);
        return facts;
    }

    private static Map<String, Object> repartition(boolean shuffles, Object partitions) {
        Map<String, Object> facts = new HashMap<>();
        facts.put("shuffles", shuffles);
        facts.put("partitions", partitions);
        return facts;
    }

    private static void putNames(Map<String, Object> facts, List<?> columns) {
        Map<String, Object> moved = new HashMap<>();
        Map<String, Object> renames = new HashMap<>();
        for (Object column : columns) {
            if (column instanceof Alias) {
                Alias alias = (Alias) column;
                Expression child = Catalyst.first(alias);
                if (child instanceof AttributeReference) {
                    moved.put(Catalyst.id(alias.toAttribute()), Catalyst.id((Attribute) child));
                }
                if (child.deterministic()) {
                    renames.put(ExpressionKeys.of(child), ExpressionKeys.of(alias.toAttribute()));
                }
            }
        }
        facts.put("moved", moved);
        facts.put("renames", renames);
    }

    private static boolean isOnlyNotNull(Expression condition) {
        if (condition instanceof And) {
            return isOnlyNotNull(((And) condition).left()) && isOnlyNotNull(((And) condition).right());
        }
        return condition instanceof IsNotNull;
    }
}
