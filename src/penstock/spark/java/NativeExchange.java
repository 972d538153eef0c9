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

/** Exchanges of columns; see `native_operators`. */
public final class NativeExchange {
    /** Returns the rows of an exchange of batches, hashed by some of their columns. */
    public SparkPlan rows(SparkPlan exchange, Seq<Attribute> columns, List<?> keys, Object decoder, SparkPlan instead) {
        List<Expression> hashed = new ArrayList<>();
        for (Object place : keys) {
            hashed.add((Expression) (Object) columns.apply((Integer) place));
        }
        exchange.copyTagsFrom(instead);
        SparkPlan made = new NativeRows(exchange, columns, PythonUtils.toSeq(hashed), decoder(decoder));
        made.copyTagsFrom(instead);
        return made;
    }

    @SuppressWarnings("unchecked")
    private static Function<Object, Object> decoder(Object given) {
        return (Function<Object, Object>) given;
    }

    /** Lets a leaf tell that its rows are those of a plan, if that has exchanged columns. */
    public void remember(LogicalPlan leaf, SparkPlan plan) {
        if (columns(plan, null) > 0) {
            NativeRows.remember(leaf, plan);
        }
    }

    /** Returns how many columns were exchanged to a stage of a plan, or to any if it is null; 0 if rows were. */
    public int columns(SparkPlan plan, SparkPlan stage) {
        if (plan instanceof NativeRows && (stage == null || ((NativeRows) plan).child() == stage)) {
            return plan.output().size();
        }
        int found = 0;
        for (Object child : Catalyst.each(plan.children())) {
            found = Math.max(found, columns((SparkPlan) child, stage));
        }
        return found;
    }

    /** Returns what was measured with other bytes, and other rows; -1 if these are not known. */
    public Statistics statistics(Statistics measured, long bytes, long rows) {
        Option<BigInt> counted = rows < 0 ? Option.<BigInt>empty() : Option.apply(BigInt.apply(rows));
        return new Statistics(BigInt.apply(bytes), counted, measured.attributeStats(), measured.isRuntime());
    }

    /** Returns what the rows of a stage of a plan are hashed by. */
    public Seq<Expression> hashed(SparkPlan plan, ShuffleQueryStageExec stage) {
        Seq<Expression> found = keys(plan, stage);
        return found == null ? ((Expression) (Object) ((SparkPlan) (Object) stage.shuffle()).outputPartitioning()).children() : found;
    }

    private static Seq<Expression> keys(SparkPlan plan, SparkPlan stage) {
        if (plan instanceof NativeRows && ((NativeRows) plan).child() == stage) {
            return ((NativeRows) plan).keys();
        }
        for (Object child : Catalyst.each(plan.children())) {
            Seq<Expression> found = keys((SparkPlan) child, stage);
            if (found != null) {
                return found;
            }
        }
        return null;
    }
}
