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

/** Window functions in DuckDB's SQL; see `NativeQuery`. */
final class NativeWindows {
    private static final List<String> RANKS = Arrays.asList("RowNumber Rank DenseRank".split(" "));
    private static final List<String> RANK_FUNCTIONS = Arrays.asList("row_number() rank() dense_rank()".split(" "));

    private NativeWindows() {
    }

    static String of(Window plan, String rows) throws NativeSql.Declined {
        StringBuilder sql = new StringBuilder("SELECT *");
        for (Object element : Catalyst.each(plan.windowExpressions())) {
            Alias alias = (Alias) element;
            if (!(alias.child() instanceof WindowExpression)) {
                throw new NativeSql.Declined("an expression with window functions");
            }
            WindowExpression expression = (WindowExpression) alias.child();
            String over = " OVER (" + partitions(plan) + orders(plan.orderSpec()) + frame(expression) + ")";
            sql.append(", ").append(value(expression.windowFunction(), over)).append(" AS c").append(alias.exprId().id());
        }
        return sql + " FROM (" + rows + ")";
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
        return NativeLogicalAggregate.of((AggregateExpression) function, over);
    }

    private static String partitions(Window plan) throws NativeSql.Declined {
        StringBuilder sql = new StringBuilder();
        for (Object key : Catalyst.each(plan.partitionSpec())) {
            if (!(key instanceof AttributeReference) || NativeTypes.isFloating(((Expression) key).dataType())) {
                throw new NativeSql.Declined("windows partitioned by expressions other than columns");
            }
            sql.append(sql.length() == 0 ? "PARTITION BY " : ", ").append(NativeSql.column((AttributeReference) key));
        }
        return sql.toString();
    }

    /** Returns ORDER BY, or an empty text without sort keys. */
    static String orders(Seq<SortOrder> orders) throws NativeSql.Declined {
        StringBuilder keys = new StringBuilder();
        for (Object element : Catalyst.each(orders)) {
            SortOrder key = (SortOrder) element;
            Expression value = key.child();
            if (NativeTypes.isFloating(value.dataType()) || !ExpressionSafety.cannotFail(value)) {
                throw new NativeSql.Declined("sorting by " + Catalyst.type(value));
            }
            keys.append(keys.length() == 0 ? " ORDER BY " : ", ").append(NativeSql.of(value)).append(" ").append(key.direction().sql())
                    .append(" ").append(key.nullOrdering().sql());
        }
        return keys.toString();
    }

    /** Returns the frame of a function: from the first row of its partition to the current or the last row. */
    private static String frame(WindowExpression expression) throws NativeSql.Declined {
        if (RANKS.contains(Catalyst.name(expression.windowFunction()))) {
            return ""; // rank functions have no frame in DuckDB
        }
        Object frame = expression.windowSpec().frameSpecification();
        if (frame instanceof SpecifiedWindowFrame) {
            SpecifiedWindowFrame specified = (SpecifiedWindowFrame) frame;
            String kind = Catalyst.name(specified.frameType()).equals("RowFrame") ? " ROWS" : " RANGE";
            String upper = Catalyst.name(specified.upper());
            boolean isSupported = upper.equals("CurrentRow") || upper.equals("UnboundedFollowing");
            if (Catalyst.name(specified.lower()).equals("UnboundedPreceding") && isSupported) {
                return kind + " BETWEEN UNBOUNDED PRECEDING AND " + (upper.equals("CurrentRow") ? "CURRENT ROW" : "UNBOUNDED FOLLOWING");
            }
        }
        throw new NativeSql.Declined("a window with another frame");
    }
}
