package penstock.plans;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.collection.immutable.Seq;

/**
 * The maximum bytes of a row in the Arrow batches that Spark sends to the Python functions of a plan.
 *
 * Only some operators of Spark are supported. Any other operator may run any function, on rows of any size.
 */
public final class ArrowRows {
    /** The size of a row whose bytes have no limit, as with a string or list column, or of an unsupported operator. */
    private static final int NO_BOUND = -1;
    private static final List<String> MAPS = Arrays.asList("MapInArrow", "MapInPandas");
    private static final String EVAL_PYTHON = "ArrowEvalPython";
    private static final Set<String> WITHOUT_PYTHON = Catalyst.words("Project Filter Generate Expand Sample Aggregate Window "
            + "WindowGroupLimit Join Union Sort GlobalLimit LocalLimit Offset Repartition RepartitionByExpression RebalancePartitions "
            + "Range LocalRelation OneRowRelation");
    private static final Set<String> RELATIONS = Catalyst.words("HadoopFsRelation JDBCRelation"); // read without Python
    private static final Map<String, Object> BYTES = Catalyst.pairs("Boolean 1 Byte 1 Short 2 Integer 4 Float 4 Date 4 "
            + "YearMonthInterval 4 Long 8 Double 8 Timestamp 8 TimestampNTZ 8 DayTimeInterval 8 Decimal 16");

    /**
     * Returns the maximum bytes of a row that a Python function of a plan receives: 0 if the plan has no such function, -1
     * if a row is unbounded or an operator is not supported. `boundedRdds` are the ids of RDDs whose rows are bounded.
     */
    public int maxRowBytes(LogicalPlan plan, String boundedRdds) {
        Set<String> rddIds = Catalyst.words(boundedRdds);
        int maxRowBytes = 0;
        for (LogicalPlan node : Catalyst.nodes(plan)) {
            int bytes = operatorRowBytes(node, rddIds);
            if (bytes == NO_BOUND) {
                return NO_BOUND;
            }
            maxRowBytes = Math.max(maxRowBytes, bytes);
        }
        return maxRowBytes;
    }

    /** Returns the maximum bytes of a row for the functions of an operator, without those of its inputs. */
    private static int operatorRowBytes(LogicalPlan plan, Set<String> boundedRdds) {
        String name = Catalyst.name(plan);
        boolean hasFunctions = MAPS.contains(name) || name.equals(EVAL_PYTHON);
        // Not supported: subqueries, and other Python functions than those of MAPS and EVAL_PYTHON.
        for (Expression part : Catalyst.parts(plan.expressions())) {
            boolean isFunction = part instanceof PythonFuncExpression;
            if (part instanceof PlanExpression || isFunction && !(hasFunctions && part instanceof PythonUDF)) {
                return NO_BOUND;
            }
        }
        if (hasFunctions) {
            return argumentBytes(plan, name);
        }
        return WITHOUT_PYTHON.contains(name) || isSupportedLeaf(plan, boundedRdds) ? 0 : NO_BOUND;
    }

    private static boolean isSupportedLeaf(LogicalPlan plan, Set<String> boundedRdds) {
        if (plan instanceof LogicalRDD) {
            return boundedRdds.contains(String.valueOf(((LogicalRDD) plan).rdd().id()));
        }
        if (plan instanceof LogicalQueryStage) { // the relation is in the driver and is not computed again
            return ((LogicalQueryStage) plan).physicalPlan() instanceof BroadcastQueryStageExec;
        }
        return plan instanceof LogicalRelation
                && RELATIONS.contains(((LogicalRelation) plan).relation().getClass().getSimpleName());
    }

    private static int argumentBytes(LogicalPlan plan, String name) {
        List<Expression> columns = new ArrayList<>();
        if (name.equals(EVAL_PYTHON)) {
            addArguments((Seq<?>) plan.productElement(0), columns);
        } else {
            columns.addAll(Catalyst.each(Catalyst.onlyChild(plan).output()));
        }
        int rowBytes = 0;
        for (Expression column : columns) {
            Object bytes = BYTES.get(column.dataType().getClass().getSimpleName().replace("$", "").replace("Type", ""));
            if (bytes == null) {
                return NO_BOUND;
            }
            rowBytes += Integer.parseInt((String) bytes) + 1; // one byte for the null flag
        }
        return Math.max(rowBytes, 1); // 0 would mean that the plan has no Python function
    }

    /** Adds the arguments of functions; a nested function is sent with its own arguments. */
    private static void addArguments(Seq<?> functions, List<Expression> arguments) {
        for (Object function : Catalyst.each(functions)) {
            for (Expression argument : Catalyst.each(((Expression) function).children())) {
                if (Catalyst.name(argument).equals("PythonUDF")) {
                    addArguments(Catalyst.seq(argument), arguments);
                } else {
                    arguments.add(argument);
                }
            }
        }
    }
}
