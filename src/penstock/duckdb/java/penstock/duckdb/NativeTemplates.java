package penstock.duckdb;

import java.time.ZoneId;
import java.time.zone.ZoneOffsetTransition;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.NativeRegex;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Translates expressions by the entries of `duckdb/expressions`, which describe patterns of expressions and their SQL. */
public final class NativeTemplates {
    private static final Pattern PLACEHOLDER = Pattern.compile("\\$(regex|groups|group|replacement)?(\\d)|\\$(type|invalid|list|concat)");
    private static final String DECIMAL_LIMIT = "decimal<=";
    /** Languages for which Java maps the case of Latin letters differently. */
    private static final List<String> OTHER_CASE_LANGUAGES = Arrays.asList("tr", "az", "lt");
    /** The entries of each class of expressions. */
    private static volatile Map<String, Object> entries = new HashMap<>();
    /** Names of classes and functions that Spark must compute in the query that this thread translates. */
    private static final ThreadLocal<Object> EXCLUDED = new ThreadLocal<>();

    public boolean isLoaded() {
        return !entries.isEmpty();
    }

    /** Sets the entries, as JSON; see `Entry.facts`. */
    public void load(String json) throws JsonProcessingException {
        Map<String, Object> loaded = new HashMap<>();
        for (Object entry : (List<?>) (Object) new ObjectMapper().readValue(json, List.class)) {
            String name = (String) ((List<?>) ((Map<?, ?>) entry).get("pattern")).get(0);
            List<Object> others = candidates(loaded, name);
            others.add(entry);
            loaded.put(name, others);
        }
        entries = loaded;
    }

    /** Sets the names (in lower case) of classes and functions that Spark must compute in plans that this thread translates. */
    static void exclude(List<?> names) {
        EXCLUDED.set(names);
    }

    static void checkIncluded(Expression expression) throws Declined {
        List<?> names = (List<?>) EXCLUDED.get();
        String name = nameOf(expression);
        if (names != null && (names.contains(name.toLowerCase(Locale.ROOT)) || names.contains(expression.prettyName()))) {
            throw new Declined("expression " + name + ", which execution.native.exclude names");
        }
    }

    /** Returns the SQL of an expression by the first entry that matches, null if there is none. */
    static String of(Expression expression) throws Declined {
        String reason = null;
        for (Object candidate : candidates(entries, nameOf(expression))) {
            Map<?, ?> entry = (Map<?, ?>) candidate;
            List<Object> operands = new ArrayList<>();
            if (!matches(entry.get("pattern"), expression, operands) || !isType((String) entry.get("result"), expression.dataType(), operands)) {
                continue;
            }
            if (entry.get("sql") != null && isGuarded(entry, expression, operands)) {
                return filled(entry, expression, operands);
            }
            reason = reason == null ? (String) entry.get("reason") : reason;
        }
        if (reason != null) {
            throw new Declined(reason);
        }
        return null;
    }

    private static List<Object> candidates(Map<String, Object> entries, String name) {
        List<?> candidates = (List<?>) entries.get(name);
        return candidates == null ? new ArrayList<Object>() : new ArrayList<Object>(candidates);
    }

    /** Returns the name of an expression's class; for a static method, the names of the class and the method. */
    private static String nameOf(Expression expression) {
        if (!(expression instanceof StaticInvoke)) {
            return Catalyst.name(expression);
        }
        StaticInvoke call = (StaticInvoke) expression;
        return call.staticObject().getSimpleName().replace("$", "") + "." + call.functionName();
    }

    /** Whether an expression has the form of a pattern; adds the operands at the leaves of the pattern. */
    private static boolean matches(Object pattern, Expression expression, List<Object> operands) {
        if (pattern instanceof String) {
            operands.add(expression);
            return isType((String) pattern, expression.dataType(), operands);
        }
        String name = (String) ((List<?>) pattern).get(0);
        List<?> parts = (List<?>) ((List<?>) pattern).get(1);
        List<?> children = Catalyst.each(expression.children());
        Object last = parts.isEmpty() ? "" : parts.get(parts.size() - 1);
        boolean isRepeated = last instanceof String && ((String) last).endsWith("*");
        if (!name.equals(nameOf(expression)) || (isRepeated ? children.size() < parts.size() - 1 : children.size() != parts.size())) {
            return false;
        }
        for (int i = 0; i < children.size(); i++) {
            Object part = parts.get(Math.min(i, parts.size() - 1));
            Object type = part == last && isRepeated ? ((String) last).substring(0, ((String) last).length() - 1) : part;
            if (!matches(type, (Expression) children.get(i), operands)) {
                return false;
            }
        }
        return true;
    }

    /** Whether a type is one of the supported types of an entry; see `Entry`. */
    private static boolean isType(String supported, DataType type, List<Object> operands) {
        String name = type.catalogString();
        for (String candidate : supported.split("\\|")) {
            boolean isSupported = candidate.equals("any") || candidate.equals(name)
                    || candidate.equals("integer") && NumericTypes.isInteger(type)
                    || candidate.equals("floating") && NumericTypes.isFloating(type)
                    || candidate.equals("exact") && !NumericTypes.isFloating(type)
                    || candidate.equals("decimal") && type instanceof DecimalType
                    || candidate.equals("same") && name.equals(Catalyst.type((Expression) operands.get(0)));
            if (candidate.startsWith(DECIMAL_LIMIT) && type instanceof DecimalType) {
                isSupported = ((DecimalType) type).precision() <= Integer.parseInt(candidate.substring(DECIMAL_LIMIT.length()));
            }
            if (isSupported) {
                return true;
            }
        }
        return false;
    }

    /** Whether the mode and the constants of an expression are those of an entry. */
    private static boolean isGuarded(Map<?, ?> entry, Expression expression, List<Object> operands) {
        String mode = (String) entry.get("mode");
        if (!mode.isEmpty() && !mode.equals(NumericTypes.overflowMode(expression))) {
            return false;
        }
        if ((Boolean) entry.get("locale_sensitive") && OTHER_CASE_LANGUAGES.contains(Locale.getDefault().getLanguage())) {
            return false;
        }
        if ((Boolean) entry.get("zone_sensitive") && skipsDay(((TimeZoneAwareExpression) expression).zoneId())) {
            return false;
        }
        for (Map.Entry<?, ?> constant : ((Map<?, ?>) entry.get("constants")).entrySet()) {
            Expression operand = (Expression) operands.get(Integer.parseInt((String) constant.getKey()));
            String value = constantText(operand);
            if (value == null || !Pattern.compile((String) constant.getValue(), Pattern.DOTALL).matcher(value).matches()) {
                return false;
            }
        }
        return true;
    }

    /** Whether the clocks of a zone skipped a day, such as 30 December 2011 in Samoa: Spark's casts turn it into the next. */
    private static boolean skipsDay(ZoneId zone) {
        for (ZoneOffsetTransition transition : zone.getRules().getTransitions()) {
            if (transition.isGap() && transition.getDuration().toHours() >= 24) {
                return true;
            }
        }
        return false;
    }

    /** Returns the text of a constant, null for null and for expressions that are not constant. */
    private static String constantText(Expression expression) {
        Object value = expression instanceof Literal ? ((Literal) expression).value() : null;
        return value == null ? null : value.toString();
    }

    private static String filled(Map<?, ?> entry, Expression expression, List<Object> operands) throws Declined {
        Matcher matcher = PLACEHOLDER.matcher((String) entry.get("sql"));
        StringBuilder sql = new StringBuilder();
        NativeRegex regex = null;
        while (matcher.find()) {
            String value;
            if (matcher.group(2) == null) {
                value = general(matcher.group(3), expression, operands);
            } else {
                int index = Integer.parseInt(matcher.group(2));
                String kind = matcher.group(1);
                if (kind == null) {
                    value = NativeSql.at(operands, index);
                } else if (kind.equals("replacement")) {
                    value = text(regex.replacement(constantText((Expression) operands.get(index))));
                } else {
                    int group = kind.equals("regex") ? NativeRegex.NO_GROUPS : kind.equals("groups") ? NativeRegex.ALL_GROUPS
                            : Integer.parseInt(constantText((Expression) operands.get(index + 1)));
                    regex = new NativeRegex(constantText((Expression) operands.get(index)), group);
                    value = text(regex.sql());
                }
            }
            matcher.appendReplacement(sql, Matcher.quoteReplacement(value));
        }
        String result = matcher.appendTail(sql).toString();
        return regex == null ? result : regex.guarded(result, NativeSql.at(operands, 0));
    }

    private static String general(String kind, Expression expression, List<Object> operands) throws Declined {
        String type = NativeTypes.nameOf(expression.dataType());
        if (kind.equals("type")) {
            return type;
        }
        if (kind.equals("invalid")) {
            return isNullIfInvalid(expression) ? "CAST(NULL AS " + type + ")" : "error('an invalid value')";
        }
        return NativeSql.list(operands, kind.equals("list") ? ", " : " || ");
    }

    /** Whether an expression returns null for invalid values, and no error. */
    private static boolean isNullIfInvalid(Expression expression) {
        String mode = NumericTypes.overflowMode(expression);
        return mode.equals("LEGACY") || mode.equals("TRY");
    }

    private static String text(String value) throws Declined {
        return NativeTypes.literal(value, DataTypes.StringType);
    }
}
