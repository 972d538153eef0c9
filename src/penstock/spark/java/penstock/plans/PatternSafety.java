package penstock.plans;

import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;

/** Decides which patterns of LIKE and of regular expressions cannot raise an error; see `ExpressionSafety`. */
public final class PatternSafety {
    /** Whether the pattern of LIKE is a constant in which each escape character precedes a wildcard or itself. */
    public static boolean hasValidPattern(Like like) {
        if (!(like.right() instanceof Literal)) {
            return false;
        }
        String pattern = String.valueOf(((Literal) like.right()).value());
        for (int i = pattern.indexOf(like.escapeChar()); i >= 0; i = pattern.indexOf(like.escapeChar(), i + 2)) {
            if (i + 1 == pattern.length() || "%_".indexOf(pattern.charAt(i + 1)) < 0 && pattern.charAt(i + 1) != like.escapeChar()) {
                return false;
            }
        }
        return true;
    }

    /** Whether a regular expression is a valid constant, and a group or replacement refers to groups that exist. */
    static boolean regexCannotFail(List<?> operands, String name) {
        for (Object operand : operands.subList(1, operands.size())) {
            if (!(operand instanceof Literal) || ((Literal) operand).value() == null) {
                return false;
            }
        }
        if (operands.get(1).toString().matches("(?s).*\\)[*+{].*")) { // Java's recursion may exceed the stack
            return false;
        }
        try {
            int groups = Pattern.compile(operands.get(1).toString()).matcher("").groupCount();
            return name.equals("RLike") || name.equals("RegExpExtract") && ExpressionSafety.number((Expression) operands.get(2)).signum() >= 0
                    && ExpressionSafety.number((Expression) operands.get(2)).intValue() <= groups
                    || name.equals("RegExpReplace") && !operands.get(2).toString().matches("(?s).*[$\\\\].*")
                    && ExpressionSafety.number((Expression) operands.get(3)).signum() > 0;
        } catch (PatternSyntaxException invalid) {
            return false;
        }
    }
}
