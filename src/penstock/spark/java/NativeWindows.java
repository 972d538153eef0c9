package penstock;

import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Window;

import scala.collection.immutable.Seq;

/** Window functions in the SQL of DuckDB; see `NativeQuery`. */
final class NativeWindows {
    private static final List<String> RANKS = Arrays.asList("RowNumber Rank DenseRank".split(" "));
    private static final List<String> RANK_FUNCTIONS = Arrays.asList("row_number() rank() dense_rank()".split(" "));

    private NativeWindows() {
    }

    static String of(Window plan, String rows) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder("SELECT *");
        for (Object each : Catalyst.each(plan.windowExpressions())) {
            Alias alias = (Alias) each;
            if (!(alias.child() instanceof WindowExpression)) {
                throw new NativeSql.Declined("an expression of window functions");
            }
            WindowExpression one = (WindowExpression) alias.child();
            String over = " OVER (" + partitions(plan) + orders(plan.orderSpec()) + frame(one) + ")";
            found.append(", ").append(value(one.windowFunction(), over)).append(" AS c").append(alias.exprId().id());
        }
        return found + " FROM (" + rows + ")";
    }

    private static String value(Expression function, String over) throws NativeSql.Declined {
        String name = Catalyst.name(function);
        if (RANKS.contains(name)) {
            return "CAST(" + RANK_FUNCTIONS.get(RANKS.indexOf(name)) + over + " AS INTEGER)";
        }
        if (!(function instanceof AggregateExpression) || !((AggregateExpression) function).filter().isEmpty()
                || ((AggregateExpression) function).isDistinct()) {
            throw new NativeSql.Declined("window function " + name);
        }
        return NativeGroups.of((AggregateExpression) function, over);
    }

    private static String partitions(Window plan) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(plan.partitionSpec())) {
            if (!(each instanceof AttributeReference) || NativeTypes.isFloating(((Expression) each).dataType())) {
                throw new NativeSql.Declined("windows by something else than columns");
            }
            found.append(found.length() == 0 ? "PARTITION BY " : ", ").append(NativeSql.column((AttributeReference) each));
        }
        return found.toString();
    }

    /** Returns an order, empty if there is none. */
    static String orders(Seq<SortOrder> orders) throws NativeSql.Declined {
        StringBuilder keys = new StringBuilder();
        for (Object each : Catalyst.each(orders)) {
            SortOrder key = (SortOrder) each;
            Expression value = key.child();
            if (NativeTypes.isFloating(value.dataType()) || !ExpressionSafety.cannotFail(value)) {
                throw new NativeSql.Declined("an order by " + Catalyst.type(value));
            }
            keys.append(keys.length() == 0 ? " ORDER BY " : ", ").append(NativeSql.of(value)).append(" ").append(key.direction().sql())
                    .append(" ").append(key.nullOrdering().sql());
        }
        return keys.toString();
    }

    /** Returns the frame of a function: from the first row of its partition to the current one, or to the last. */
    private static String frame(WindowExpression one) throws NativeSql.Declined {
        if (RANKS.contains(Catalyst.name(one.windowFunction()))) {
            return ""; // it has none in DuckDB
        }
        Object frame = one.windowSpec().frameSpecification();
        if (frame instanceof SpecifiedWindowFrame) {
            SpecifiedWindowFrame given = (SpecifiedWindowFrame) frame;
            String kind = Catalyst.name(given.frameType()).equals("RowFrame") ? " ROWS" : " RANGE";
            String upper = Catalyst.name(given.upper());
            boolean isKnown = upper.equals("CurrentRow") || upper.equals("UnboundedFollowing");
            if (Catalyst.name(given.lower()).equals("UnboundedPreceding") && isKnown) {
                return kind + " BETWEEN UNBOUNDED PRECEDING AND " + (upper.equals("CurrentRow") ? "CURRENT ROW" : "UNBOUNDED FOLLOWING");
            }
        }
        throw new NativeSql.Declined("a window of another frame");
    }
}
