package penstock;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;

import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Runs a command that writes rows to files, and before that the queries that Penstock runs for it, but for their last
 * stage. So AQE runs its stages. The command deletes what it overwrites before it asks for rows, and a query that fails
 * must leave the old rows.
 */
public final class WriteExec extends SparkPlan {
    private static final long serialVersionUID = 1L;

    private final SparkPlan command;

    public WriteExec(SparkPlan command) {
        this.command = command;
    }

    @Override
    public InternalRow[] executeCollect() {
        runStages(command);
        return command.executeCollect();
    }

    private static void runStages(SparkPlan plan) {
        if (plan instanceof PenstockExec) {
            ((PenstockExec) plan).runStages();
        }
        for (Object child : Catalyst.each(plan.children())) {
            runStages((SparkPlan) child);
        }
    }

    @Override
    public RDD<InternalRow> doExecute() {
        runStages(command);
        return command.execute();
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
