package penstock.delegation;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;

import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;
import penstock.plans.PenstockOperator;
import penstock.plans.RowLayout;

/**
 * A physical leaf that represents a whole query. Penstock runs the query only when its rows are requested.
 *
 * The node has only the query and its service as fields, so that Spark can copy it. The job returns a plan whose last stage
 * has not run; all actions run this plan.
 */
public final class PenstockExec extends PenstockOperator {
    private static final long serialVersionUID = 1L;

    private final transient LogicalPlan query;
    private final transient QueryHook.Service service;
    /** A separate lock, so that an explanation of the plan does not wait for a running query. */
    private final transient Object explanationLock = new Object();
    private transient SparkPlan result; // stays null for a query without shuffle
    private transient DelegatedQuery delegated;
    private transient Seq<?> explained;

    public PenstockExec(LogicalPlan query, QueryHook.Service service) {
        super(new Object[] {query, service});
        this.query = query;
        this.service = service;
    }

    /**
     * Runs the query once, and returns the plan of its rows: a second action only reruns the last stage, as in Spark. A
     * query without shuffle has only a last stage, so it runs again completely: its sources may have changed.
     *
     * A synchronized block, as Janino locks the class in a synchronized private method.
     */
    private SparkPlan result() {
        synchronized (this) {
            if (result != null) {
                return result;
            }
            delegated = new DelegatedQuery(service, query, session());
            SparkPlan plan = delegated.result();
            result = RowLayout.isNarrow(query) ? null : plan;
            return plan;
        }
    }

    /** Whether AQE would run stages of the query before its last stage. */
    boolean hasStages() {
        return !RowLayout.isNarrow(query) || CachedRows.hasCachedStages(query);
    }

    /** Runs the cached queries that the query reads, and the query up to its last stage. */
    void runStages() {
        if (!hasStages()) {
            return;
        }
        for (Object leaf : Catalyst.each(query.collectLeaves())) {
            if (leaf instanceof InMemoryRelation) {
                CachedRows.fill((InMemoryRelation) leaf);
            }
        }
        if (RowLayout.isNarrow(query)) {
            return;
        }
        SparkPlan plan = result();
        if (plan instanceof AdaptiveSparkPlanExec) {
            ((AdaptiveSparkPlanExec) plan).finalPhysicalPlan();
        }
    }

    /** Drops the rows cached for a command that has finished; a further action computes them again. */
    void dropCachedRows() {
        synchronized (this) {
            if (delegated != null) {
                delegated.dropRows();
            }
        }
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return result().execute();
    }

    @Override
    public InternalRow[] executeCollect() {
        return result().executeCollect();
    }

    @Override
    public Tuple2<Object, Iterator<InternalRow>> executeCollectIterator() {
        return result().executeCollectIterator();
    }

    @Override
    public Iterator<InternalRow> executeToIterator() {
        return result().executeToIterator();
    }

    @Override
    public InternalRow[] executeTake(int rows) {
        return result().executeTake(rows);
    }

    @Override
    public InternalRow[] executeTail(int rows) {
        return result().executeTail(rows);
    }

    @Override
    public Seq<Attribute> output() {
        return query.output();
    }

    /** Returns the nodes shown below this one: the query, and the explanation of the job if a user requested it. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // Scala declares two element types without a common Java type
    @Override
    public Seq innerChildren() {
        if (session() == null || !ExplainedLine.isRequested(session().sparkContext())) {
            return Catalyst.seq(query);
        }
        synchronized (explanationLock) {
            if (explained == null) {
                List<Object> nodes = new ArrayList<>();
                nodes.add(query);
                nodes.addAll(ExplainedLine.of(new DelegatedQuery(service, query, session()).explanation()));
                explained = PythonUtils.toSeq(nodes);
            }
            return explained;
        }
    }

    @Override
    public String nodeName() {
        return "Penstock";
    }

    @Override
    public String simpleString(int fields) {
        return nodeName() + " " + query.output().mkString("[", ", ", "]");
    }
}
