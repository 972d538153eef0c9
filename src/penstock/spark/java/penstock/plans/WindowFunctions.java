package penstock.plans;

import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Window;

/** Decides whether the functions of a window have the same results if its rows are divided into chunks by their order. */
public final class WindowFunctions {
    private static final List<String> RANKS = Arrays.asList("RowNumber Rank DenseRank".split(" "));
    private static final List<String> MERGEABLE = Arrays.asList("Count Sum Min Max".split(" "));

    /** Returns why the rows of a key must be in a single task, null if they can be divided by their order. */
    public String indivisibleReason(Window window) {
        boolean isOrdered = false;
        for (Expression key : Catalyst.each(window.orderSpec())) {
            Expression value = Catalyst.first(key);
            isOrdered = isOrdered || !value.foldable();
            if (isCollated(value)) {
                return "it orders by texts in a collation";
            }
        }
        if (!isOrdered) {
            return "it has no order to divide the rows of a key by";
        }
        for (Expression key : Catalyst.each(window.partitionSpec())) {
            if (isCollated(key) || key.foldable()) {
                return "it is partitioned by " + (isCollated(key) ? "texts in a collation" : "a constant");
            }
        }
        for (Object column : Catalyst.each(window.windowExpressions())) {
            WindowExpression function = of((Expression) column);
            String reason = function == null ? "a column is more than a window function" : indivisibleReason(function);
            if (reason != null) {
                return reason;
            }
        }
        return null;
    }

    private static boolean isCollated(Expression expression) {
        return Catalyst.type(expression).toLowerCase().contains(" collate ");
    }

    private static String indivisibleReason(WindowExpression expression) {
        Expression function = expression.windowFunction();
        boolean isAggregate = function instanceof AggregateExpression;
        Object inner = isAggregate ? ((AggregateExpression) function).aggregateFunction() : function;
        String name = ((Expression) inner).prettyName();
        if (!(isAggregate ? MERGEABLE : RANKS).contains(Catalyst.name(inner))) {
            return name + " needs all rows of a key in one task";
        }
        Object frame = expression.windowSpec().frameSpecification();
        if (!(frame instanceof SpecifiedWindowFrame)
                || !Catalyst.name(((SpecifiedWindowFrame) frame).lower()).equals("UnboundedPreceding")
                || !Catalyst.name(((SpecifiedWindowFrame) frame).upper()).equals("CurrentRow")) {
            return name + " has another frame than UNBOUNDED PRECEDING to CURRENT ROW, so it needs all rows of a key in one task";
        }
        if (isAggregate && !JoinPreAggregation.isMergeable((AggregateExpression) function)) {
            return "this " + name + " may have a different result if it is computed in chunks";
        }
        return null;
    }

    /** Returns the window function of a column, possibly in a MakeDecimal; null for any other expression. */
    static WindowExpression of(Expression alias) {
        if (alias.children().isEmpty()) { // a column of a subquery that became a join
            return null;
        }
        Expression inner = Catalyst.first(alias);
        if (Catalyst.name(inner).equals("MakeDecimal")) {
            inner = Catalyst.first(inner);
        }
        return inner instanceof WindowExpression ? (WindowExpression) inner : null;
    }
}
