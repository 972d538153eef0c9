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
 * Tells how many bytes a row takes at most in the Arrow batches that Spark gives to the Python functions of a plan.
 *
 * It knows some operators of Spark's. Whatever else is in a plan may run any function, on rows of any size.
 */
public final class ArrowRows {
    /** A row has no bound if it has a column of no such type: texts, lists and the like. */
    private static final int NO_BOUND = -1;
    private static final List<String> MAPS = Arrays.asList("MapInArrow", "MapInPandas");
    private static final String OF_COLUMNS = "ArrowEvalPython";
    private static final Set<String> WITHOUT_PYTHON = words("Project Filter Generate Expand Sample Aggregate Window "
            + "WindowGroupLimit Join Union Sort GlobalLimit LocalLimit Offset Repartition RepartitionByExpression RebalancePartitions "
            + "Range LocalRelation OneRowRelation");
    private static final Set<String> RELATIONS = words("HadoopFsRelation JDBCRelation");
    private static final Map<String, Integer> BYTES = new HashMap<>();

    static {
        for (Object each : words("Boolean Byte")) {
            BYTES.put((String) each, Integer.valueOf(1));
        }
        BYTES.put("Short", Integer.valueOf(2));
        for (Object each : words("Integer Float Date YearMonthInterval")) {
            BYTES.put((String) each, Integer.valueOf(4));
        }
        for (Object each : words("Long Double Timestamp TimestampNTZ DayTimeInterval")) {
            BYTES.put((String) each, Integer.valueOf(8));
        }
        BYTES.put("Decimal", Integer.valueOf(16));
    }

    private static Set<String> words(String text) {
        return new HashSet<>(Arrays.asList(text.split(" ")));
    }

    /**
     * Returns the bytes of the widest row that a function of a plan is given; 0 if the plan has no function, and -1 if a
     * row has no bound or not all of the plan is known.
     *
     * Rows that lie ready are known by the number of their RDD.
     */
    public int widest(LogicalPlan plan, String knownRows) {
        return widest(plan, words(knownRows));
    }

    private static int widest(LogicalPlan plan, Set<String> knownRows) {
        int widest = own(plan, knownRows);
        for (Object child : Catalyst.each(plan.children())) {
            int below = widest == NO_BOUND ? NO_BOUND : widest((LogicalPlan) child, knownRows);
            widest = below == NO_BOUND ? NO_BOUND : Math.max(widest, below);
        }
        return widest;
    }

    /** Returns the same for an operator alone. */
    private static int own(LogicalPlan plan, Set<String> knownRows) {
        String name = Catalyst.name(plan);
        boolean hasFunctions = MAPS.contains(name) || name.equals(OF_COLUMNS);
        for (Object expression : Catalyst.each(plan.expressions())) {
            if (!isKnown((Expression) expression, hasFunctions)) {
                return NO_BOUND;
            }
        }
        if (hasFunctions) {
            return width(plan, name);
        }
        return WITHOUT_PYTHON.contains(name) || isKnownLeaf(plan, knownRows) ? 0 : NO_BOUND;
    }

    /** Whether an expression runs no plan, and no Python function or only such as an operator is known to have. */
    private static boolean isKnown(Expression expression, boolean hasFunctions) {
        boolean isFunction = expression instanceof PythonFuncExpression;
        if (expression instanceof PlanExpression || isFunction && !(hasFunctions && expression instanceof PythonUDF)) {
            return false;
        }
        for (Object child : Catalyst.each(expression.children())) {
            if (!isKnown((Expression) child, hasFunctions)) {
                return false;
            }
        }
        return true;
    }

    private static boolean isKnownLeaf(LogicalPlan plan, Set<String> knownRows) {
        if (plan instanceof LogicalRDD) {
            return knownRows.contains(String.valueOf(((LogicalRDD) plan).rdd().id()));
        }
        if (plan instanceof LogicalQueryStage) { // the relation is in the driver, and not made again
            return ((LogicalQueryStage) plan).physicalPlan() instanceof BroadcastQueryStageExec;
        }
        return plan instanceof LogicalRelation
                && RELATIONS.contains(((LogicalRelation) plan).relation().getClass().getSimpleName());
    }

    private static int width(LogicalPlan plan, String name) {
        int[] width = {0};
        if (name.equals(OF_COLUMNS)) {
            for (Object function : Catalyst.each((scala.collection.immutable.Seq<?>) plan.productElement(0))) {
                addArguments((Expression) function, width);
            }
        } else {
            Object below = plan.children().head();
            for (Object column : Catalyst.each(((LogicalPlan) below).output())) {
                add(((Expression) column).dataType(), width);
            }
        }
        return width[0] == 0 ? 1 : width[0]; // of a row without columns it is told that it is there
    }

    /** Adds what a function is given; one that is given the result of another one gets the arguments of that. */
    private static void addArguments(Expression function, int[] width) {
        for (Object each : Catalyst.each(function.children())) {
            Expression argument = (Expression) each;
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
        width[0] = isBounded ? width[0] + ((Integer) bytes).intValue() + 1 : NO_BOUND; // one more for whether it is null
    }
}
