package penstock.exchange;

import java.util.Arrays;
import java.util.function.Function;

import org.apache.spark.MapOutputStatistics;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.CoalescedPartitionSpec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AQEShuffleReadExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;

import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;
import penstock.plans.PenstockOperator;

/** Converts exchanged column batches to rows. Each row of the child is a batch of columns. */
public final class ColumnsToRows extends PenstockOperator {
    private static final long serialVersionUID = 1L;
    /** Tag of a leaf with the plan of its rows. */
    static final TreeNodeTag<Object> PLAN = new TreeNodeTag<Object>("penstock.plan-of-rows");

    private final transient SparkPlan child;
    private final transient Seq<Attribute> columns;
    final transient Seq<Expression> keys;
    private final transient Function<Object, Object> decoder;

    /**
     * @param keys the expressions by which the rows are hashed
     * @param decoder converts an RDD of batches, and the columns, to an RDD of rows
     */
    public ColumnsToRows(SparkPlan child, Seq<Attribute> columns, Seq<Expression> keys, Function<Object, Object> decoder) {
        super(new Object[] {child, columns, keys, decoder});
        this.child = child;
        this.columns = columns;
        this.keys = keys;
        this.decoder = decoder;
    }

    /** Returns the plan of a scan's rows, null without tag. */
    public static SparkPlan planOf(SparkPlan scan) {
        if (scan.logicalLink().isEmpty()) {
            return null;
        }
        LogicalPlan leaf = (LogicalPlan) (Object) scan.logicalLink().get();
        return leaf.getTagValue(PLAN).isEmpty() ? null : (SparkPlan) leaf.getTagValue(PLAN).get();
    }

    public SparkPlan child() {
        return child;
    }

    /** Returns the bytes, as written, that the task with the largest input reads; 0 if unknown. */
    public long largestPartitionBytes() {
        SparkPlan stage = child instanceof AQEShuffleReadExec ? ((AQEShuffleReadExec) child).child() : child;
        if (!(stage instanceof ShuffleQueryStageExec) || ((ShuffleQueryStageExec) stage).mapStats().isEmpty()) {
            return 0;
        }
        long[] subpartitionBytes = ((MapOutputStatistics) (Object) ((ShuffleQueryStageExec) stage).mapStats().get()).bytesByPartitionId();
        if (stage == child) {
            return Arrays.stream(subpartitionBytes).max().orElse(0);
        }
        long largest = 0;
        for (Object spec : Catalyst.each(((AQEShuffleReadExec) child).partitionSpecs())) {
            if (spec instanceof CoalescedPartitionSpec) {
                CoalescedPartitionSpec merged = (CoalescedPartitionSpec) spec;
                long size = Arrays.stream(subpartitionBytes, merged.startReducerIndex(), merged.endReducerIndex()).sum();
                largest = Math.max(largest, size);
            }
        }
        return largest;
    }

    @Override
    public String productPrefix() {
        return "ColumnsToRows";
    }

    @SuppressWarnings("unchecked")
    @Override
    public RDD<InternalRow> doExecute() {
        return (RDD<InternalRow>) decoder.apply(Arrays.<Object>asList(child.execute(), columns));
    }

    /** Returns the partitioning by the keys of the rows: a batch is hashed by a number that represents these keys. */
    @Override
    public Partitioning outputPartitioning() {
        Object partitioning = child.outputPartitioning();
        if (child instanceof AQEShuffleReadExec && ((AQEShuffleReadExec) child).isLocalRead()) {
            // A local read divides rows by mapper, although it reports the partitioning of the exchange.
            return new UnknownPartitioning(((Partitioning) partitioning).numPartitions());
        }
        if (partitioning instanceof CoalescedHashPartitioning) {
            CoalescedHashPartitioning merged = (CoalescedHashPartitioning) partitioning;
            return new CoalescedHashPartitioning(byKeys(merged.from()), merged.partitions());
        }
        if (partitioning instanceof HashPartitioning) {
            return byKeys((HashPartitioning) partitioning);
        }
        return new UnknownPartitioning(((Partitioning) partitioning).numPartitions());
    }

    private HashPartitioning byKeys(HashPartitioning batches) {
        return new HashPartitioning(keys, batches.numPartitions());
    }

    @Override
    public Seq<Attribute> output() {
        return columns;
    }

    @Override
    public Seq<SparkPlan> children() {
        return Catalyst.seq(child);
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return new ColumnsToRows((SparkPlan) (Object) children.head(), columns, keys, decoder);
    }

    @Override
    public String nodeName() {
        return "Penstock columns to rows";
    }

    @Override
    public String simpleString(int fields) {
        return nodeName() + " " + columns.mkString("[", ", ", "]");
    }
}
