package penstock.delegation;

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

import penstock.plans.Catalyst;
import penstock.plans.PenstockOperator;

/**
 * Runs a command that writes rows to files. Before the command, it runs the delegated query up to its last stage,
 * and the cached queries that are read, as AQE would run stages: the command deletes old files before it requests rows,
 * and the old rows must not be lost if the query fails.
 *
 * It runs only if AQE has no stage, as rules of AQE expect the command itself at the top. If AQE has materialized
 * cached rows as a stage, it plans the command again without this class.
 */
public final class WriteExec extends PenstockOperator {
    private static final long serialVersionUID = 1L;

    private final SparkPlan command;

    public WriteExec(SparkPlan command) {
        super(new Object[] {command});
        this.command = command;
    }

    /** Whether the command that writes the rows of a query needs this node; `isDelegated` if Penstock runs the query. */
    static boolean isNeeded(LogicalPlan query, boolean isDelegated) {
        SQLConf conf = SQLConf.get();
        // Without these settings, Spark itself runs the query after deleting files.
        return conf.adaptiveExecutionEnabled() && conf.plannedWriteEnabled() && (isDelegated || CachedRows.hasCachedStages(query));
    }

    @Override
    public InternalRow[] executeCollect() {
        try {
            runStages();
            return command.executeCollect();
        } finally {
            for (SparkPlan node : Catalyst.nodes(command)) {
                if (node instanceof PenstockExec) {
                    ((PenstockExec) node).dropCachedRows();
                }
            }
        }
    }

    @Override
    public RDD<InternalRow> doExecute() {
        runStages();
        return command.execute();
    }

    private void runStages() {
        for (SparkPlan node : Catalyst.nodes(command)) {
            if (node instanceof PenstockExec) {
                ((PenstockExec) node).runStages();
            } else if (node instanceof InMemoryTableScanExec) {
                CachedRows.fill(((InMemoryTableScanExec) node).relation());
            }
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
}
