package penstock;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;

import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;

/** Functions of texts in the SQL of DuckDB; see `NativeSql`. */
final class NativeTexts {
    /**
     * Letters that Java, ICU and DuckDB bring alike into upper and lower case, in all their releases: of Latin without
     * those that become two, Cyrillic, and of scripts that have one case; also signs and pictures. None of Greek, whose
     * sigma is another one at the end of a word.
     */
    private static final String ALIKE = letters("1-DE E0-12F 131-148 14A-17F 400-52F 5D0-5EA 620-64A 900-DFF E00-EFF "
            + "2000-206F 20A0-20BF 3040-30FF 4E00-9FFF AC00-D7A3 1F300-1FAFF");

    /** Languages in which Java's upper and lower case of Latin letters are others. */
    private static final List<String> OTHER_LETTERS = Arrays.asList("tr", "az", "lt");

    private NativeTexts() {
    }

    private static String letters(String ranges) {
        return "\\x{" + ranges.replace("-", "}-\\x{").replace(" ", "}\\x{") + "}";
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

    /** Returns a text in upper or lower case, an error if it has letters that are another thing in Java than in DuckDB. */
    static String inCase(String sql, String function) throws NativeSql.Declined {
        if (OTHER_LETTERS.contains(Locale.getDefault().getLanguage())) {
            throw new NativeSql.Declined("letters of a language that has its own upper and lower case");
        }
        String isAlike = "strlen(" + sql + ") = length(" + sql + ") OR regexp_full_match(" + sql + ", '[" + ALIKE + "]*')";
        return "(CASE WHEN " + isAlike + " THEN " + function + "(" + sql + ") WHEN " + sql
                + " IS NOT NULL THEN error('a text with unusual letters') END)";
    }
}
