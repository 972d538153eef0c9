package penstock;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
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
import org.apache.spark.sql.types.DataType;

/**
 * The maximum bytes of a row in the Arrow batches that Spark sends to the Python functions of a plan.
 *
 * Only some operators of Spark are supported. Any other operator may run any function, on rows of any size.
 */
public final class ArrowRows {
    /** The size of a row with a column of variable width, such as a string or a list. */
    private static final int NO_BOUND = -1;
    private static final List<String> MAPS = Arrays.asList("MapInArrow", "MapInPandas");
    private static final String EVAL_PYTHON = "ArrowEvalPython";
    private static final Set<String> WITHOUT_PYTHON = splitWords("Project Filter Generate Expand Sample Aggregate Window "
            + "WindowGroupLimit Join Union Sort GlobalLimit LocalLimit Offset Repartition RepartitionByExpression RebalancePartitions "
            + "Range LocalRelation OneRowRelation");
    private static final Set<String> RELATIONS = splitWords("HadoopFsRelation JDBCRelation");
    private static final Map<String, Integer> BYTES = new HashMap<>();

    static {
        for (Object element : splitWords("Boolean Byte")) {
            BYTES.put((String) element, Integer.valueOf(1));
        }
        BYTES.put("Short", Integer.valueOf(2));
        for (Object element : splitWords("Integer Float Date YearMonthInterval")) {
            BYTES.put((String) element, Integer.valueOf(4));
        }
        for (Object element : splitWords("Long Double Timestamp TimestampNTZ DayTimeInterval")) {
            BYTES.put((String) element, Integer.valueOf(8));
        }
        BYTES.put("Decimal", Integer.valueOf(16));
    }

    private static Set<String> splitWords(String text) {
        return new HashSet<>(Arrays.asList(text.split(" ")));
    }

    /**
     * Returns the maximum bytes of a row that a Python function of a plan receives: 0 if the plan has no such function, -1
     * if a row is unbounded or an operator is not supported.
     *
     * @param materialized the ids of RDDs whose rows are materialized, separated by spaces
     */
    public int maxRowBytes(LogicalPlan plan, String materialized) {
        return maxRowBytes(plan, splitWords(materialized));
    }

    private static int maxRowBytes(LogicalPlan plan, Set<String> materialized) {
        int maxRowBytes = ownBytes(plan, materialized);
        for (Object child : Catalyst.each(plan.children())) {
            int below = maxRowBytes == NO_BOUND ? NO_BOUND : maxRowBytes((LogicalPlan) child, materialized);
            maxRowBytes = below == NO_BOUND ? NO_BOUND : Math.max(maxRowBytes, below);
        }
        return maxRowBytes;
    }

    /** Returns the maximum bytes for an operator without its inputs. */
    private static int ownBytes(LogicalPlan plan, Set<String> materialized) {
        String name = Catalyst.name(plan);
        boolean hasFunctions = MAPS.contains(name) || name.equals(EVAL_PYTHON);
        for (Object expression : Catalyst.each(plan.expressions())) {
            if (!isSupported((Expression) expression, hasFunctions)) {
                return NO_BOUND;
            }
        }
        if (hasFunctions) {
            return width(plan, name);
        }
        return WITHOUT_PYTHON.contains(name) || isSupportedLeaf(plan, materialized) ? 0 : NO_BOUND;
    }

    /** Whether an expression runs no subquery, and no Python function except UDFs of an operator that evaluates these. */
    private static boolean isSupported(Expression expression, boolean hasFunctions) {
        boolean isFunction = expression instanceof PythonFuncExpression;
        if (expression instanceof PlanExpression || isFunction && !(hasFunctions && expression instanceof PythonUDF)) {
            return false;
        }
        for (Object child : Catalyst.each(expression.children())) {
            if (!isSupported((Expression) child, hasFunctions)) {
                return false;
            }
        }
        return true;
    }

    private static boolean isSupportedLeaf(LogicalPlan plan, Set<String> materialized) {
        if (plan instanceof LogicalRDD) {
            return materialized.contains(String.valueOf(((LogicalRDD) plan).rdd().id()));
        }
        if (plan instanceof LogicalQueryStage) { // the relation is in the driver and is not computed again
            return ((LogicalQueryStage) plan).physicalPlan() instanceof BroadcastQueryStageExec;
        }
        return plan instanceof LogicalRelation
                && RELATIONS.contains(((LogicalRelation) plan).relation().getClass().getSimpleName());
    }

    private static int width(LogicalPlan plan, String name) {
        int[] width = {0};
        if (name.equals(EVAL_PYTHON)) {
            for (Object function : Catalyst.each((scala.collection.immutable.Seq<?>) plan.productElement(0))) {
                addArguments((Expression) function, width);
            }
        } else {
            Object below = plan.children().head();
            for (Object column : Catalyst.each(((LogicalPlan) below).output())) {
                add(((Expression) column).dataType(), width);
            }
        }
        return width[0] == 0 ? 1 : width[0]; // a row without columns still takes part in the row count
    }

    /** Adds the arguments of a function; a nested function is sent with its own arguments. */
    private static void addArguments(Expression function, int[] width) {
        for (Object element : Catalyst.each(function.children())) {
            Expression argument = (Expression) element;
            if (Catalyst.name(argument).equals("PythonUDF")) {
                addArguments(argument, width);
            } else {
                add(argument.dataType(), width);
            }
        }
    }

    private static void add(DataType type, int[] width) {
        String name = type.getClass().getSimpleName().replace("$", "").replace("Type", "");
        Object bytes = BYTES.get(name);
        boolean isBounded = bytes != null && width[0] != NO_BOUND;
        width[0] = isBounded ? width[0] + ((Integer) bytes).intValue() + 1 : NO_BOUND; // one byte more for the null flag
    }
}
