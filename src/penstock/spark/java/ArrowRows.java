package penstock;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;

/** Tells how many bytes a row takes in the Arrow batches that Spark gives to a Python function. */
public final class ArrowRows {
    /** A row has no bound if it has a column of no such type: texts, lists and the like. */
    private static final int NO_BOUND = -1;
    private static final List<String> MAPS = Arrays.asList("MapInArrow MapInPandas PythonMapInArrow".split(" "));
    private static final Map<String, Integer> BYTES = new HashMap<>();

    static {
        for (Object each : Arrays.asList("Boolean Byte".split(" "))) {
            BYTES.put((String) each, Integer.valueOf(1));
        }
        BYTES.put("Short", Integer.valueOf(2));
        for (Object each : Arrays.asList("Integer Float Date YearMonthInterval".split(" "))) {
            BYTES.put((String) each, Integer.valueOf(4));
        }
        for (Object each : Arrays.asList("Long Double Timestamp TimestampNTZ DayTimeInterval".split(" "))) {
            BYTES.put((String) each, Integer.valueOf(8));
        }
        BYTES.put("Decimal", Integer.valueOf(16));
    }

    /** Returns the bytes that an operator's function is given for each row, at most; -1 if that has no bound or is not known. */
    public int width(LogicalPlan plan) {
        int[] width = {0};
        if (MAPS.contains(Catalyst.name(plan))) {
            Object below = plan.children().head();
            for (Object column : Catalyst.each(((LogicalPlan) below).output())) {
                add(((Expression) column).dataType(), width);
            }
        } else if (Catalyst.name(plan).equals("ArrowEvalPython")) {
            for (Object function : Catalyst.each((scala.collection.immutable.Seq<?>) plan.productElement(0))) {
                addArguments((Expression) function, width);
            }
        } else {
            return NO_BOUND;
        }
        return width[0];
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
