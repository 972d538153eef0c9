package penstock;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.internal.SQLConf;

import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Runs a command that writes rows to files, and before that the query that Penstock runs for it, but for its last stage,
 * and the cached queries that are read. So AQE runs its stages. The command deletes what it overwrites before it asks
 * for rows, and a query that fails must leave the old rows.
 *
 * It is used only where AQE has no stage, as rules of AQE expect the command itself at the top. Where AQE has fetched
 * cached rows as a stage, it plans again, and without this class.
 */
public final class WriteExec extends SparkPlan {
    private static final long serialVersionUID = 1L;

    private final SparkPlan command;

    public WriteExec(SparkPlan command) {
        this.command = command;
    }

    /**
     * Whether a command needs it.
     *
     * @param query what the command writes
     * @param isTaken whether Penstock runs that
     */
    static boolean isNeeded(LogicalPlan query, boolean isTaken) {
        SQLConf conf = SQLConf.get();
        // Without these two, Spark's command asks for rows after it has deleted files, too.
        return conf.adaptiveExecutionEnabled() && conf.plannedWriteEnabled() && (isTaken || CachedRows.haveStages(query));
    }

    @Override
    public InternalRow[] executeCollect() {
        try {
            runStages(command);
            return command.executeCollect();
        } finally {
            dropKept(command);
        }
    }

    @Override
    public RDD<InternalRow> doExecute() {
        runStages(command);
        return command.execute();
    }

    private static void runStages(SparkPlan plan) {
        if (plan instanceof PenstockExec) {
            ((PenstockExec) plan).runStages();
        } else if (plan instanceof InMemoryTableScanExec) {
            CachedRows.fill(((InMemoryTableScanExec) plan).relation());
        }
        for (Object child : Catalyst.each(plan.children())) {
            runStages((SparkPlan) child);
        }
    }

    private static void dropKept(SparkPlan plan) {
        if (plan instanceof PenstockExec) {
            ((PenstockExec) plan).dropKept();
        }
        for (Object child : Catalyst.each(plan.children())) {
            dropKept((SparkPlan) child);
        }
    }

    @Override
    public Map<String, SQLMetric> metrics() {
        return command.metrics();
    }

    @Override
    public Seq<Attribute> output() {
        return command.output();
    }

    @Override
    public Seq<SparkPlan> children() {
        return Catalyst.seq(command);
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return new WriteExec((SparkPlan) (Object) children.head());
    }

    @Override
    public String nodeName() {
        return "Penstock " + command.nodeName();
    }

    @Override
    public int productArity() {
        return 1;
    }

    @Override
    public Object productElement(int place) {
        return command;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof WriteExec;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof WriteExec && ((WriteExec) other).command.equals(command);
    }

    @Override
    public int hashCode() {
        return command.hashCode();
    }
}
