package penstock.duckdb;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Functions of dates, strings and unscaled decimals in DuckDB's SQL; see `NativeSql`. */
final class NativeFunctions {
    private static final Map<String, Object> DATE_PARTS = Catalyst.pairs("Year year Month month DayOfMonth day");
    /**
     * Characters whose upper and lower case is the same in all releases of Java, ICU and DuckDB: Latin letters that map to
     * single letters, Cyrillic, scripts without case, symbols and emoji. Greek is excluded, as its final sigma depends on
     * the position in a word.
     */
    private static final String PORTABLE_CHARACTERS = characterClass("1-DE E0-12F 131-148 14A-17F 400-52F 5D0-5EA 620-64A 900-DFF E00-EFF "
            + "2000-206F 20A0-20BF 3040-30FF 4E00-9FFF AC00-D7A3 1F300-1FAFF");
    /** Languages for which Java maps the case of Latin letters differently. */
    private static final List<String> OTHER_CASE_LANGUAGES = Arrays.asList("tr", "az", "lt");

    static String of(Expression expression, List<?> arguments) throws NativeSql.Declined {
        String name = Catalyst.name(expression);
        if (expression instanceof Like) {
            return like((Like) expression);
        }
        if (DATE_PARTS.containsKey(name)) {
            return "CAST(" + DATE_PARTS.get(name) + "(" + NativeTypes.finite(NativeSql.at(arguments, 0)) + ") AS INTEGER)";
        }
        if (name.equals("UnscaledValue")) {
            DecimalType type = (DecimalType) Catalyst.first(expression).dataType();
            String decimal = NativeSql.at(arguments, 0);
            if (type.precision() + type.scale() > 18) { // DuckDB computes a product of 64-bit decimals in 64 bits
                decimal = "CAST(" + decimal + " AS DECIMAL(" + NumericTypes.sumType(type).precision() + "," + type.scale() + "))";
            }
            return "CAST(" + NativeDecimals.unscaled(decimal, type) + " AS BIGINT)";
        }
        if (name.equals("MakeDecimal")) {
            return NativeDecimals.ofUnscaled(NativeSql.at(arguments, 0), (DecimalType) expression.dataType());
        }
        if (name.equals("Concat") && NativeTypes.nameOf(expression.dataType()).equals("VARCHAR") && !arguments.isEmpty()) {
            NativeSql.checkSameTypes(arguments);
            StringBuilder concatenation = new StringBuilder();
            for (int i = 0; i < arguments.size(); i++) {
                concatenation.append(i == 0 ? "(" : " || ").append(NativeSql.at(arguments, i));
            }
            return concatenation.append(")").toString(); // null if an argument is null, as in Spark
        }
        if (name.equals("DateAdd") || name.equals("DateSub")) {
            return "CAST((" + NativeTypes.finite(NativeSql.at(arguments, 0)) + (name.equals("DateAdd") ? " + " : " - ") + NativeSql.at(arguments, 1) + ") AS DATE)";
        }
        if (name.equals("StartsWith") || name.equals("EndsWith") || name.equals("Contains")) {
            String function = name.equals("StartsWith") ? "starts_with" : name.equals("EndsWith") ? "suffix" : "contains";
            return function + "(" + NativeSql.list(arguments) + ")";
        }
        if (name.equals("Upper") || name.equals("Lower")) {
            return withCase(NativeSql.at(arguments, 0), name.toLowerCase(Locale.ROOT));
        }
        if (name.equals("Substring")) {
            return substring(arguments);
        }
        if (name.equals("BloomFilterMightContain")) { // without it, DuckDB would compute groups that a join drops
            throw new NativeSql.Declined("a Bloom filter of the keys of another table");
        }
        throw new NativeSql.Declined("expression " + name);
    }

    private static String characterClass(String ranges) {
        return "\\x{" + ranges.replace("-", "}-\\x{").replace(" ", "}\\x{") + "}";
    }

    private static String like(Like like) throws NativeSql.Declined {
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
    private static String substring(List<?> arguments) throws NativeSql.Declined {
        for (int i = 1; i < 3; i++) { // the position is at least 1, the length at least 0
            Object value = arguments.get(i) instanceof Literal ? ((Literal) arguments.get(i)).value() : null;
            if (!(value instanceof Integer) || ((Integer) value).intValue() < 2 - i) {
                throw new NativeSql.Declined("a substring that is not counted from the beginning");
            }
        }
        return "substring(" + NativeSql.list(arguments) + ")";
    }

    /** Returns a string in upper or lower case, or an error if Java and DuckDB may map a character differently. */
    private static String withCase(String sql, String function) throws NativeSql.Declined {
        if (OTHER_CASE_LANGUAGES.contains(Locale.getDefault().getLanguage())) {
            throw new NativeSql.Declined("a language with its own upper and lower case");
        }
        String isPortable = "strlen(" + sql + ") = length(" + sql + ") OR regexp_full_match(" + sql + ", '[" + PORTABLE_CHARACTERS + "]*')";
        return "(CASE WHEN " + isPortable + " THEN " + function + "(" + sql + ") WHEN " + sql
                + " IS NOT NULL THEN error('a text with unusual letters') END)";
    }
}
