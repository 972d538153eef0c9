package penstock.plans;

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

import penstock.bridge.Answer;

/** Reads the properties of a logical plan's nodes; see `nodes.read_plan`. */
public final class PlanReader {
    private static final int MAX_DESCRIBED_COLUMNS = 25;

    /** Returns the facts of all nodes of a plan in pre-order, and the nodes. */
    public Answer read(LogicalPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> nodes = new ArrayList<>();
        visit(plan, facts, nodes);
        return Answer.of(facts, nodes);
    }

    public Object sql(Expression expression) {
        return Answer.ofText(expression.sql());
    }

    private static void visit(LogicalPlan plan, List<Object> facts, List<Object> nodes) {
        facts.add(facts(plan));
        nodes.add(plan);
        for (LogicalPlan input : inputs(plan)) {
            visit(input, facts, nodes);
        }
    }

    /** Returns the inputs of a plan; a recursive query counts as a leaf, as its inputs make no sense outside of it. */
    private static List<LogicalPlan> inputs(LogicalPlan plan) {
        return Catalyst.name(plan).equals("UnionLoop") ? Collections.<LogicalPlan>emptyList() : Catalyst.each(plan.children());
    }

    private static Map<String, Object> facts(LogicalPlan plan) {
        List<Object> keys = new ArrayList<>();
        for (Attribute column : Catalyst.each(plan.output())) {
            keys.add(ExpressionKeys.of(column));
        }
        Map<String, Object> tableAliases = new HashMap<>();
        for (Attribute column : Catalyst.each(plan.references().toSeq())) {
            Seq<?> qualifier = column.qualifier();
            if (qualifier.nonEmpty()) {
                tableAliases.put(Catalyst.id(column), qualifier.last());
            }
        }
        FunctionNames functions = new FunctionNames(plan);
        Map<String, Object> facts = Answer.facts("name", Catalyst.name(plan), "children", inputs(plan).size(),
                "ids", Catalyst.ids(plan.output()), "keys", keys, "references", Catalyst.ids(plan.references().toSeq()),
                "aliases", tableAliases, "description", plan.simpleString(MAX_DESCRIBED_COLUMNS),
                "is_deterministic", plan.deterministic(), "cannot_fail", ExpressionSafety.cannotFail(plan.expressions()),
                "functions", functions.aggregates, "nondeterministic", functions.nondeterministic, "python_functions", functions.python);
        HadoopFsRelation relation = Catalyst.fileRelation(plan);
        if (relation != null) {
            facts.put("files", FileRelations.facts((LogicalRelation) plan, relation));
            facts.put("partition_columns", Arrays.asList(relation.partitionSchema().fieldNames()));
        } else if (plan instanceof HiveTableRelation) {
            facts.put("partition_columns", Catalyst.names(((HiveTableRelation) plan).partitionCols()));
        } else if (plan instanceof Sort) {
            facts.put("sort", sortFacts((Sort) plan));
        } else if (plan instanceof MapInPandas) {
            facts.put("is_barrier", ((MapInPandas) plan).isBarrier());
        } else if (plan instanceof MapInArrow) {
            facts.put("is_barrier", ((MapInArrow) plan).isBarrier());
        } else if (plan instanceof Repartition) {
            Repartition repartition = (Repartition) plan;
            facts.put("repartition", Answer.facts("shuffles", repartition.shuffle(), "partitions", repartition.numPartitions()));
        } else if (plan instanceof RepartitionByExpression) {
            Option<?> partitions = ((RepartitionByExpression) plan).optNumPartitions();
            facts.put("repartition", Answer.facts("shuffles", true, "partitions", partitions.isDefined() ? partitions.get() : null));
        } else if (plan instanceof Filter) {
            facts.put("filters_only_nulls", removesOnlyNulls(((Filter) plan).condition()));
        } else if (plan instanceof Project) {
            putRenamings(facts, Catalyst.each(((Project) plan).projectList()));
        } else if (plan instanceof Aggregate) {
            putRenamings(facts, Catalyst.each(((Aggregate) plan).aggregateExpressions()));
            facts.put("is_generated_hash_aggregate", isGeneratedHashAggregate((Aggregate) plan));
        }
        return facts;
    }

    /** Whether Spark runs an aggregate as a hash aggregate in generated code, which evaluates results lazily. */
    public static boolean isGeneratedHashAggregate(Aggregate aggregate) {
        List<Attribute> buffers = new ArrayList<>();
        for (Expression part : Catalyst.parts(aggregate.aggregateExpressions())) {
            if (part instanceof AggregateFunction && !(part instanceof DeclarativeAggregate)) { // such as in Python, or collect_list
                return false;
            }
            if (part instanceof AggregateFunction) {
                buffers.addAll(Catalyst.each(((AggregateFunction) part).aggBufferAttributes()));
            }
        }
        return aggregate.groupingExpressions().nonEmpty()
                && Aggregate$.MODULE$.supportsHashAggregate(PythonUtils.toSeq(buffers), aggregate.groupingExpressions());
    }

    private static Map<String, Object> sortFacts(Sort sort) {
        List<Object> order = new ArrayList<>();
        for (Object key : Catalyst.each(sort.order())) {
            order.add(key.toString());
        }
        return Answer.facts("is_global", sort.global(), "order", order);
    }

    /** Adds the input column of each renamed column, and the new key of each expression that has an alias. */
    private static void putRenamings(Map<String, Object> facts, List<?> columns) {
        Map<String, Object> renamedColumns = new HashMap<>();
        Map<String, Object> renamedKeys = new HashMap<>();
        for (Object column : columns) {
            if (column instanceof Alias) {
                Alias alias = (Alias) column;
                Expression child = Catalyst.first(alias);
                if (child instanceof AttributeReference) {
                    renamedColumns.put(Catalyst.id(alias.toAttribute()), Catalyst.id((Attribute) child));
                }
                if (child.deterministic()) {
                    renamedKeys.put(ExpressionKeys.of(child), ExpressionKeys.of(alias.toAttribute()));
                }
            }
        }
        facts.put("renamed_columns", renamedColumns);
        facts.put("renamed_keys", renamedKeys);
    }

    private static boolean removesOnlyNulls(Expression condition) {
        if (condition instanceof And) {
            return removesOnlyNulls(((And) condition).left()) && removesOnlyNulls(((And) condition).right());
        }
        return condition instanceof IsNotNull;
    }
}
