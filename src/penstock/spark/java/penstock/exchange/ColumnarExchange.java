package penstock.exchange;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;

import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

import penstock.plans.Catalyst;

/** Exchanges of column batches, which a native engine writes. */
public final class ColumnarExchange {
    /** Returns the rows of an exchange by the columns at the positions `keys`, with the tags of the `original` plan. */
    public SparkPlan rows(SparkPlan exchange, Seq<Attribute> columns, List<?> keys, Function<Object, Object> decoder, SparkPlan original) {
        List<Expression> keyColumns = new ArrayList<>();
        for (Object index : keys) {
            keyColumns.add((Expression) (Object) columns.apply((Integer) index));
        }
        exchange.copyTagsFrom(original);
        SparkPlan rows = new ColumnsToRows(exchange, columns, PythonUtils.toSeq(keyColumns), decoder);
        rows.copyTagsFrom(original);
        return rows;
    }

    /** Tags a leaf with the plan of its rows, if that plan exchanges columns. */
    public void tagLeaf(LogicalPlan leaf, SparkPlan plan) {
        if (columnCount(plan, null) > 0) {
            leaf.setTagValue(ColumnsToRows.PLAN, plan);
        }
    }

    /** Returns the number of columns that a stage of a plan exchanges (any stage if null); 0 if it exchanges rows. */
    public int columnCount(SparkPlan plan, SparkPlan stage) {
        ColumnsToRows reader = reader(plan, stage);
        return reader == null ? 0 : reader.output().size();
    }

    /** Returns measured statistics with other bytes and rows; `rows` is -1 if their number is unknown. */
    public Statistics statistics(Statistics measured, long bytes, long rows) {
        Option<BigInt> rowCount = rows < 0 ? Option.<BigInt>empty() : Option.apply(BigInt.apply(rows));
        return new Statistics(BigInt.apply(bytes), rowCount, measured.attributeStats(), measured.isRuntime());
    }

    /** Returns the keys by which the rows of a stage are hashed. */
    public Seq<Expression> hashKeys(SparkPlan plan, ShuffleQueryStageExec stage) {
        ColumnsToRows reader = reader(plan, stage);
        return reader == null ? ((Expression) (Object) ((SparkPlan) (Object) stage.shuffle()).outputPartitioning()).children() : reader.keys;
    }

    private static ColumnsToRows reader(SparkPlan plan, SparkPlan stage) {
        for (SparkPlan node : Catalyst.nodes(plan)) {
            if (node instanceof ColumnsToRows && (stage == null || ((ColumnsToRows) node).child() == stage)) {
                return (ColumnsToRows) node;
            }
        }
        return null;
    }
}
