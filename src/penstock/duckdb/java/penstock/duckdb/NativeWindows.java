package penstock.duckdb;

import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Window;

import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/** Window functions, and the first rows in a sort order (top N), in DuckDB's SQL; see `NativeQuery`. */
final class NativeWindows {
    private static final Map<String, Object> RANKS = Catalyst.pairs("RowNumber row_number() Rank rank() DenseRank dense_rank()");

    static String of(Window plan, String rows) throws NativeSql.Declined {
        StringBuilder sql = new StringBuilder("SELECT *");
        for (Object element : Catalyst.each(plan.windowExpressions())) {
            Alias alias = (Alias) element;
            if (!(alias.child() instanceof WindowExpression)) {
                throw new NativeSql.Declined("an expression with window functions");
            }
            WindowExpression expression = (WindowExpression) alias.child();
            String keys = NativeLogicalAggregate.keyColumns(plan.partitionSpec(), "windows partitioned by expressions other than columns", true);
            String over = " OVER (" + (keys.isEmpty() ? "" : "PARTITION BY " + keys) + orderBy(plan.orderSpec()) + frame(expression) + ")";
            sql.append(", ").append(value(expression.windowFunction(), over)).append(" AS c").append(alias.exprId().id());
        }
        return sql + " FROM (" + rows + ")";
    }

    private static String value(Expression function, String over) throws NativeSql.Declined {
        String name = Catalyst.name(function);
        if (RANKS.containsKey(name)) {
            return "CAST(" + RANKS.get(name) + over + " AS INTEGER)";
        }
        if (!(function instanceof AggregateExpression) || !((AggregateExpression) function).filter().isEmpty()
                || ((AggregateExpression) function).isDistinct()) {
            throw new NativeSql.Declined("window function " + name);
        }
        return NativeLogicalAggregate.of((AggregateExpression) function, over);
    }

    static String orderBy(Seq<SortOrder> orders) throws NativeSql.Declined {
        StringBuilder keys = new StringBuilder();
        for (SortOrder key : Catalyst.each(orders)) {
            Expression value = key.child();
            if (!ExpressionSafety.cannotFail(value)) {
                throw new NativeSql.Declined("sorting by a value that may fail");
            }
            keys.append(keys.length() == 0 ? " ORDER BY " : ", ").append(NativeSql.of(value)).append(" ").append(key.direction().sql())
                    .append(" ").append(key.nullOrdering().sql());
        }
        return keys.toString();
    }

    /** Returns the first rows of a query in a sort order. */
    static String firstRows(GlobalLimit limit, Sort sort, String rows) throws NativeSql.Declined {
        if (!(limit.limitExpr() instanceof Literal)) {
            throw new NativeSql.Declined("a limit that is not constant");
        }
        return "SELECT * FROM (" + rows + ")" + orderBy(sort.order()) + " LIMIT " + limit.limitExpr();
    }

    /** Returns the frame of a window function: from the first row of the partition to the current or the last row. */
    private static String frame(WindowExpression expression) throws NativeSql.Declined {
        if (RANKS.containsKey(Catalyst.name(expression.windowFunction()))) {
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
