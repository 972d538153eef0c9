package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AQEShuffleReadExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;

import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Converts exchanged column batches to rows. Each row of its child is a batch of columns; see `native/scatter.py`.
 *
 * Spark copies the node by calling its constructor with the product's elements.
 */
public final class NativeRows extends SparkPlan {
    private static final long serialVersionUID = 1L;
    private static final TreeNodeTag<Object> PLAN = new TreeNodeTag<Object>("penstock.plan-of-rows");

    private final transient SparkPlan child;
    private final transient Seq<Attribute> columns;
    private final transient Seq<Expression> keys;
    private final transient Function<Object, Object> decoder;

    /**
     * @param keys the expressions by which the rows are hashed
     * @param decoder converts batches to rows; see `NativeDecoder`
     */
    public NativeRows(SparkPlan child, Seq<Attribute> columns, Seq<Expression> keys, Function<Object, Object> decoder) {
        this.child = child;
        this.columns = columns;
        this.keys = keys;
        this.decoder = decoder;
    }

    /** Tags a leaf with the plan of its rows. */
    static void remember(LogicalPlan leaf, SparkPlan plan) {
        leaf.setTagValue(PLAN, plan);
    }

    /** Returns the plan of a scan's rows, null without tag. */
    static SparkPlan planOf(SparkPlan scan) {
        if (scan.logicalLink().isEmpty()) {
            return null;
        }
        LogicalPlan leaf = (LogicalPlan) (Object) scan.logicalLink().get();
        return leaf.getTagValue(PLAN).isEmpty() ? null : (SparkPlan) leaf.getTagValue(PLAN).get();
    }

    SparkPlan child() {
        return child;
    }

    /** Returns the bytes of the largest task's input, as written; 0 if unknown. */
    long largestPartition() {
        SparkPlan stage = child instanceof AQEShuffleReadExec ? ((AQEShuffleReadExec) child).child() : child;
        if (!(stage instanceof ShuffleQueryStageExec) || ((ShuffleQueryStageExec) stage).mapStats().isEmpty()) {
            return 0;
        }
        long[] subpartitionBytes = ((MapOutputStatistics) (Object) ((ShuffleQueryStageExec) stage).mapStats().get()).bytesByPartitionId();
        long largest = 0;
        if (child instanceof AQEShuffleReadExec) {
            for (Object spec : Catalyst.each(((AQEShuffleReadExec) child).partitionSpecs())) {
                long size = 0;
                if (spec instanceof CoalescedPartitionSpec) {
                    CoalescedPartitionSpec merged = (CoalescedPartitionSpec) spec;
                    for (int i = merged.startReducerIndex(); i < merged.endReducerIndex(); i++) {
                        size += subpartitionBytes[i];
                    }
                }
                largest = Math.max(largest, size);
            }
            return largest;
        }
        for (int i = 0; i < subpartitionBytes.length; i++) {
            largest = Math.max(largest, subpartitionBytes[i]);
        }
        return largest;
    }

    Seq<Expression> keys() {
        return keys;
    }

    @Override
    public String productPrefix() {
        return "NativeRows";
    }

    /** Replaces the node when an operator above is serialized for tasks; see `PenstockExec.writeReplace`. */
    protected Object writeReplace() {
        return new CommandResultExec(columns, null, null);
    }

    @SuppressWarnings("unchecked")
    @Override
    public RDD<InternalRow> doExecute() {
        return (RDD<InternalRow>) decoder.apply(Arrays.<Object>asList(child.execute(), columns));
    }

    /** Translates the partitioning: batches are hashed by the number of the subpartition of their rows' keys. */
    @Override
    public Partitioning outputPartitioning() {
        Object partitioning = child.outputPartitioning();
        if (child instanceof AQEShuffleReadExec && ((AQEShuffleReadExec) child).isLocalRead()) {
            return new UnknownPartitioning(((Partitioning) partitioning).numPartitions()); // it reports the partitioning of the exchange
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
        return new NativeRows((SparkPlan) (Object) children.head(), columns, keys, decoder);
    }

    @Override
    public String nodeName() {
        return "Penstock columns to rows";
    }

    @Override
    public String simpleString(int fields) {
        return nodeName() + " " + columns.mkString("[", ", ", "]");
    }

    @Override
    public Iterator<Object> stringArgs() {
        return Catalyst.<Object>none().iterator();
    }

    @Override
    public int productArity() {
        return elements().size();
    }

    @Override
    public Object productElement(int index) {
        return elements().get(index);
    }

    private List<Object> elements() {
        return new ArrayList<Object>(Arrays.asList(child, columns, keys, decoder));
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof NativeRows;
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
