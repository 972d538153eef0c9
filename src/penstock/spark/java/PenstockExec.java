package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;

import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A physical leaf that stands for a whole query. Penstock runs the query when, and only when, its rows are asked for.
 *
 * Spark copies such a node by calling its constructor with the elements of the product, and compares these: so it holds
 * nothing but the query and who runs it. What the job gives is a plan whose last stage has not run, and that plan does
 * the rest.
 */
public final class PenstockExec extends SparkPlan {
    private static final long serialVersionUID = 1L;

    private final transient LogicalPlan query;
    private final transient QueryHook.Service service;
    /** Not the node itself: who wants to see the plan does not wait until the query has run. */
    private final transient Object explaining = new Object();
    private transient SparkPlan result;
    private transient HandedQuery handed;
    private transient Seq<?> explained;

    public PenstockExec(LogicalPlan query, QueryHook.Service service) {
        this.query = query;
        this.service = service;
    }

    /**
     * Runs the query, once: a second action runs its last stage again, as in Spark. One without a shuffle is its last
     * stage, so it is run as a whole again: its sources may hold other rows by then.
     *
     * Janino would let a synchronized private method hold the lock of the class.
     */
    private SparkPlan result() {
        synchronized (this) {
            if (result != null) {
                return result;
            }
            handed = new HandedQuery(service, query, session());
            SparkPlan made = handed.result();
            result = RowLayout.isNarrow(query) ? null : made;
            return made;
        }
    }

    /** Whether AQE would run a part of the query before its last stage. */
    boolean hasStages() {
        return !RowLayout.isNarrow(query) || CachedRows.haveStages(query);
    }

    /** Runs the query but for its last stage, and the cached queries that it reads; where Spark runs it, its stages. */
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
        SparkPlan made = result();
        if (made instanceof AdaptiveSparkPlanExec) {
            ((AdaptiveSparkPlanExec) made).finalPhysicalPlan();
        }
    }

    /** Drops what was kept for a command, which has its rows; who asks again has them computed again. */
    void dropKept() {
        synchronized (this) {
            if (handed != null) {
                handed.drop();
            }
        }
    }

    /**
     * What tasks get instead, where an operator above sends itself to them with all below it, as a limit does: they
     * have no such class. Protected, as Janino would make a function of a private method.
     */
    protected Object writeReplace() {
        return new CommandResultExec(output(), null, null);
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

    @Override
    public Seq<SparkPlan> children() {
        return Catalyst.none();
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return this;
    }

    /** What is shown below the node: the query, as Penstock gets it, and for a user who asks the job it would be. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // Scala's two declarations of the element have no common one in Java
    @Override
    public Seq innerChildren() {
        if (session() == null || !ExplainedLine.isWanted(session().sparkContext())) {
            return Catalyst.seq(query);
        }
        synchronized (explaining) {
            if (explained == null) {
                List<Object> all = new ArrayList<>();
                all.add(query);
                all.addAll(ExplainedLine.of(new HandedQuery(service, query, session()).explanation()));
                explained = PythonUtils.toSeq(all);
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

    /** What is shown of the constructor's arguments: nothing, the query is shown below. */
    @Override
    public Iterator<Object> stringArgs() {
        return Catalyst.<Object>none().iterator();
    }

    @Override
    public int productArity() {
        return 2;
    }

    @Override
    public Object productElement(int place) {
        return place == 0 ? query : service;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof PenstockExec;
    }

    @Override
    public boolean equals(Object other) {
        return other == this;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }
}
