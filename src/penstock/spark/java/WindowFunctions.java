package penstock;

import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Window;

/** Tells whether the functions of a window come out the same if its rows are divided by their order. */
public final class WindowFunctions {
    private static final List<String> RANKS = Arrays.asList("RowNumber Rank DenseRank".split(" "));
    private static final List<String> SUMS = Arrays.asList("Count Sum Min Max".split(" "));

    /** Returns why the rows of a key must be in one task, null if they can be divided by their order. */
    public String whyTogether(Window window) {
        boolean isOrdered = false;
        for (Object one : Catalyst.each(window.orderSpec())) {
            Expression value = Catalyst.first((Expression) one);
            isOrdered = isOrdered || !value.foldable();
            if (isCollated(value)) {
                return "it orders by texts in a collation";
            }
        }
        if (!isOrdered) {
            return "it has no order to divide the rows of a key by";
        }
        for (Object one : Catalyst.each(window.partitionSpec())) {
            if (isCollated((Expression) one) || ((Expression) one).foldable()) {
                return "it is partitioned by " + (isCollated((Expression) one) ? "texts in a collation" : "a constant");
            }
        }
        for (Object one : Catalyst.each(window.windowExpressions())) {
            WindowExpression function = of((Expression) one);
            String why = function == null ? "not all of its functions are known" : whyTogether(function);
            if (why != null) {
                return why;
            }
        }
        return null;
    }

    private static boolean isCollated(Expression one) {
        return Catalyst.type(one).toLowerCase().contains(" collate ");
    }

    private static String whyTogether(WindowExpression one) {
        Expression function = one.windowFunction();
        boolean sums = function instanceof AggregateExpression;
        Object inner = sums ? ((AggregateExpression) function).aggregateFunction() : function;
        String called = ((Expression) inner).prettyName();
        if (!(sums ? SUMS : RANKS).contains(Catalyst.name(inner))) {
            return called + " needs all rows of a key in one task";
        }
        Object frame = one.windowSpec().frameSpecification();
        if (!(frame instanceof SpecifiedWindowFrame)
                || !Catalyst.name(((SpecifiedWindowFrame) frame).lower()).equals("UnboundedPreceding")
                || !Catalyst.name(((SpecifiedWindowFrame) frame).upper()).equals("CurrentRow")) {
            return called + " over other rows than those up to the current one needs all of them in one task";
        }
        if (sums && !EarlySums.isSummedInSteps((AggregateExpression) function)) {
            return "this " + called + " may come out otherwise if it is computed in pieces";
        }
        return null;
    }

    /** Returns the function of a window's column, null if more is made of it than a decimal of a sum of digits. */
    static WindowExpression of(Expression alias) {
        Expression inner = Catalyst.first(alias);
        if (Catalyst.name(inner).equals("MakeDecimal")) {
            inner = Catalyst.first(inner);
        }
        return inner instanceof WindowExpression ? (WindowExpression) inner : null;
    }
}
