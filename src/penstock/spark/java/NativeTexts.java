package penstock;

import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;

/** Functions of texts in the SQL of DuckDB; see `NativeSql`. */
final class NativeTexts {
    private NativeTexts() {
    }

    /** Returns a comparison with a pattern. */
    static String like(Like like) throws NativeSql.Declined {
        if (!(like.right() instanceof Literal) || ((Literal) like.right()).value() == null) {
            throw new NativeSql.Declined("a pattern that is not constant");
        }
        String pattern = ((Literal) like.right()).value().toString();
        if (pattern.indexOf(like.escapeChar()) >= 0 || pattern.indexOf('\\') >= 0) {
            throw new NativeSql.Declined("a pattern with escaped characters");
        }
        return "(" + NativeSql.of(like.left()) + " LIKE " + NativeTypes.literal(pattern, like.right().dataType()) + ")";
    }

    /** Returns a part of a text, counted from its beginning. */
    static String substring(List<?> parts) throws NativeSql.Declined {
        for (int i = 1; i < 3; i++) {
            Object value = parts.get(i) instanceof Literal ? ((Literal) parts.get(i)).value() : null;
            if (!(value instanceof Integer) || ((Integer) value).intValue() < 2 - i) {
                throw new NativeSql.Declined("a part of a text that is not counted from its beginning");
            }
        }
        return "substring(" + NativeSql.listed(parts) + ")";
    }
}
