package penstock;

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

/** Exchanges of column batches; see `native_operators`. */
public final class NativeExchange {
    /** Returns the rows of an exchange of batches, hashed by some of their columns. */
    public SparkPlan rows(SparkPlan exchange, Seq<Attribute> columns, List<?> keys, Object decoder, SparkPlan original) {
        List<Expression> keyColumns = new ArrayList<>();
        for (Object index : keys) {
            keyColumns.add((Expression) (Object) columns.apply((Integer) index));
        }
        exchange.copyTagsFrom(original);
        SparkPlan rows = new NativeRows(exchange, columns, PythonUtils.toSeq(keyColumns), decoder(decoder));
        rows.copyTagsFrom(original);
        return rows;
    }

    @SuppressWarnings("unchecked")
    private static Function<Object, Object> decoder(Object function) {
        return (Function<Object, Object>) function;
    }

    /** Tags a leaf with the plan of its rows, if that plan exchanges columns. */
    public void remember(LogicalPlan leaf, SparkPlan plan) {
        if (columns(plan, null) > 0) {
            NativeRows.remember(leaf, plan);
        }
    }

    /** Returns the number of columns exchanged by a stage of a plan, or by any stage if null; 0 if rows were exchanged. */
    public int columns(SparkPlan plan, SparkPlan stage) {
        if (plan instanceof NativeRows && (stage == null || ((NativeRows) plan).child() == stage)) {
            return plan.output().size();
        }
        int count = 0;
        for (Object child : Catalyst.each(plan.children())) {
            count = Math.max(count, columns((SparkPlan) child, stage));
        }
        return count;
    }

    /** Returns measured statistics with other bytes and rows; -1 for unknown rows. */
    public Statistics statistics(Statistics measured, long bytes, long rows) {
        Option<BigInt> counted = rows < 0 ? Option.<BigInt>empty() : Option.apply(BigInt.apply(rows));
        return new Statistics(BigInt.apply(bytes), counted, measured.attributeStats(), measured.isRuntime());
    }

    /** Returns the keys by which the rows of a stage are hashed. */
    public Seq<Expression> hashKeys(SparkPlan plan, ShuffleQueryStageExec stage) {
        Seq<Expression> keys = keys(plan, stage);
        return keys == null ? ((Expression) (Object) ((SparkPlan) (Object) stage.shuffle()).outputPartitioning()).children() : keys;
    }

    private static Seq<Expression> keys(SparkPlan plan, SparkPlan stage) {
        if (plan instanceof NativeRows && ((NativeRows) plan).child() == stage) {
            return ((NativeRows) plan).keys();
        }
        for (Object child : Catalyst.each(plan.children())) {
            Seq<Expression> childKeys = keys((SparkPlan) child, stage);
            if (childKeys != null) {
                return childKeys;
            }
        }
        return null;
    }
}
