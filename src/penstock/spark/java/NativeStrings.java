package penstock;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;

import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;

/** String functions in DuckDB's SQL; see `NativeSql`. */
final class NativeStrings {
    /**
     * Characters whose upper and lower case is the same in all releases of Java, ICU and DuckDB: Latin letters that map to
     * single letters, Cyrillic, scripts without case, symbols and emoji. Greek is excluded, as its final sigma depends on
     * the position in a word.
     */
    private static final String PORTABLE = characterClass("1-DE E0-12F 131-148 14A-17F 400-52F 5D0-5EA 620-64A 900-DFF E00-EFF "
            + "2000-206F 20A0-20BF 3040-30FF 4E00-9FFF AC00-D7A3 1F300-1FAFF");

    /** Languages for which Java maps the case of Latin letters differently. */
    private static final List<String> OTHER_CASE_LANGUAGES = Arrays.asList("tr", "az", "lt");

    private NativeStrings() {
    }

    private static String characterClass(String ranges) {
        return "\\x{" + ranges.replace("-", "}-\\x{").replace(" ", "}\\x{") + "}";
    }

    /** Returns LIKE with a constant pattern. */
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

    /** Returns a substring with constant bounds, counted from the beginning. */
    static String substring(List<?> arguments) throws NativeSql.Declined {
        for (int i = 1; i < 3; i++) {
            Object value = arguments.get(i) instanceof Literal ? ((Literal) arguments.get(i)).value() : null;
            if (!(value instanceof Integer) || ((Integer) value).intValue() < 2 - i) {
                throw new NativeSql.Declined("a substring that is not counted from the beginning");
            }
        }
        return "substring(" + NativeSql.list(arguments) + ")";
    }

    /** Returns a string in upper or lower case, an error if Java and DuckDB may map a character differently. */
    static String inCase(String sql, String function) throws NativeSql.Declined {
        if (OTHER_CASE_LANGUAGES.contains(Locale.getDefault().getLanguage())) {
            throw new NativeSql.Declined("a language with its own upper and lower case");
        }
        String isPortable = "strlen(" + sql + ") = length(" + sql + ") OR regexp_full_match(" + sql + ", '[" + PORTABLE + "]*')";
        return "(CASE WHEN " + isPortable + " THEN " + function + "(" + sql + ") WHEN " + sql
                + " IS NOT NULL THEN error('a text with unusual letters') END)";
    }
}
