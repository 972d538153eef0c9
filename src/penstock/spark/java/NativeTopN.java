package penstock;

import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Sort;

/** The first rows in a sort order (top N) in DuckDB's SQL; see `NativeQuery`. */
final class NativeTopN {
    private NativeTopN() {
    }

    static String of(GlobalLimit limit, Sort sort, String rows) throws NativeSql.Declined {
        if (!(limit.limitExpr() instanceof Literal)) {
            throw new NativeSql.Declined("a limit that is not constant");
        }
        return "SELECT * FROM (" + rows + ")" + NativeWindows.orders(sort.order()) + " LIMIT " + limit.limitExpr();
    }
}
