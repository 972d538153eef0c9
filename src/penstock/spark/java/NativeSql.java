package penstock;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Enumeration;
import scala.Option;
import scala.Product;

/**
 * Spells expressions in the SQL of DuckDB: only those that are known to give the values that Spark gives.
 *
 * An overflow is an error in DuckDB. The rows are then computed by Spark, so it may be an error or a value there.
 */
final class NativeSql {
    private static final Map<String, Object> TYPES = new HashMap<>();
    private static final Map<String, Object> OPERATORS = new HashMap<>();
    private static final List<String> WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    private static final int[] DIGITS = {3, 5, 10, 19};
    private static final List<String> DATE_PARTS = Arrays.asList("Year Month DayOfMonth".split(" "));
    private static final List<String> DATE_FUNCTIONS = Arrays.asList("year month day".split(" "));

    /** So many values of a list are spelled; a longer one is not. */
    private static final int LISTED = 1000;

    static {
        put(TYPES, "boolean BOOLEAN tinyint TINYINT smallint SMALLINT int INTEGER bigint BIGINT float FLOAT "
                + "double DOUBLE date DATE string VARCHAR");
        put(OPERATORS, "And AND Or OR EqualTo = LessThan < LessThanOrEqual <= GreaterThan > GreaterThanOrEqual >= "
                + "Add + Subtract - Multiply *");
    }

    private NativeSql() {
    }

    /** What is not spelled, and why. */
    static final class Declined extends Exception {
        private static final long serialVersionUID = 1L;

        Declined(String why) {
            super(why);
        }
    }

    private static void put(Map<String, Object> map, String words) {
        String[] found = words.split(" ");
        for (int i = 0; i < found.length; i += 2) {
            map.put(found[i], found[i + 1]);
        }
    }

    /** Returns a type's name. */
    static String type(DataType type) throws Declined {
        if (type instanceof DecimalType) {
            return "DECIMAL(" + ((DecimalType) type).precision() + "," + ((DecimalType) type).scale() + ")";
        }
        Object name = TYPES.get(type.catalogString());
        if (name == null) {
            throw new Declined("type " + type.catalogString());
        }
        return (String) name;
    }

    /** Returns the name of a column. */
    static String column(AttributeReference column) throws Declined {
        type(column.dataType());
        return "c" + Catalyst.id(column);
    }

    /** Returns an expression. */
    static String of(Expression one) throws Declined {
        String type = type(one.dataType());
        String name = Catalyst.name(one);
        List<?> parts = Catalyst.each(one.children());
        if (one instanceof AttributeReference) {
            return column((AttributeReference) one);
        }
        if (one instanceof Literal) {
            return literal(((Literal) one).value(), one.dataType());
        }
        if (one instanceof Cast) {
            return cast((Cast) one, type);
        }
        if (one instanceof InSet) {
            return inSet((InSet) one);
        }
        if (one instanceof Like) {
            return like((Like) one);
        }
        if (one instanceof CaseWhen) {
            return caseWhen((CaseWhen) one);
        }
        if (one instanceof BinaryArithmetic) {
            checkArithmetic((BinaryArithmetic) one, name);
            String sum = "(" + part(parts, 0) + " " + OPERATORS.get(name) + " " + part(parts, 1) + ")";
            return "CAST(" + sum + " AS " + type + ")";
        }
        if (OPERATORS.containsKey(name)) {
            checkComparable(parts);
            return "(" + part(parts, 0) + " " + OPERATORS.get(name) + " " + part(parts, 1) + ")";
        }
        if (DATE_PARTS.contains(name)) {
            return "CAST(" + DATE_FUNCTIONS.get(DATE_PARTS.indexOf(name)) + "(" + part(parts, 0) + ") AS INTEGER)";
        }
        if (name.equals("Alias") || name.equals("KnownNotNull") || name.equals("KnownNullable")) {
            return part(parts, 0);
        }
        if (name.equals("UnscaledValue")) {
            BigDecimal unit = BigDecimal.TEN.pow(((DecimalType) Catalyst.first(one).dataType()).scale());
            return "CAST((" + part(parts, 0) + " * CAST(" + unit + " AS DECIMAL(18,0))) AS BIGINT)";
        }
        if (name.equals("Not")) {
            return "(NOT " + part(parts, 0) + ")";
        }
        if (name.equals("IsNull") || name.equals("IsNotNull")) {
            return "(" + part(parts, 0) + (name.equals("IsNull") ? " IS NULL)" : " IS NOT NULL)");
        }
        if (name.equals("EqualNullSafe")) {
            checkComparable(parts);
            return "(" + part(parts, 0) + " IS NOT DISTINCT FROM " + part(parts, 1) + ")";
        }
        if (name.equals("In")) {
            checkComparable(parts);
            return "(" + part(parts, 0) + " IN (" + listed(parts.subList(1, parts.size())) + "))";
        }
        if (name.equals("Coalesce")) {
            checkSameTypes(parts);
            return "coalesce(" + listed(parts) + ")";
        }
        if (name.equals("If")) {
            checkSameTypes(parts.subList(1, 3));
            return "(CASE WHEN " + part(parts, 0) + " THEN " + part(parts, 1) + " ELSE " + part(parts, 2) + " END)";
        }
        if (name.equals("StartsWith") || name.equals("EndsWith") || name.equals("Contains")) {
            String function = name.equals("StartsWith") ? "starts_with" : name.equals("EndsWith") ? "suffix" : "contains";
            return function + "(" + listed(parts) + ")";
        }
        if (name.equals("Substring")) {
            return substring(parts);
        }
        throw new Declined("expression " + name);
    }

    /** Returns a condition. DuckDB may ask its parts in another order, so none may fail in Spark. */
    static String condition(Expression one) throws Declined {
        if (!ExpressionSafety.cannotFail(one)) {
            throw new Declined("a condition that may fail");
        }
        return of(one);
    }

    private static String part(List<?> parts, int place) throws Declined {
        return of((Expression) parts.get(place));
    }

    private static String listed(List<?> parts) throws Declined {
        if (parts.size() > LISTED) {
            throw new Declined("a list of " + parts.size() + " values");
        }
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < parts.size(); i++) {
            found.append(i == 0 ? "" : ", ").append(part(parts, i));
        }
        return found.toString();
    }

    /** Checks that values can be compared. What files say of their largest numbers knows nothing of NaN. */
    private static void checkComparable(List<?> parts) throws Declined {
        checkSameTypes(parts);
        if (isFloating(((Expression) parts.get(0)).dataType())) {
            throw new Declined("a comparison of floating-point numbers");
        }
    }

    /** Whether a type is one of floating-point numbers. */
    static boolean isFloating(DataType type) {
        return type.catalogString().equals("float") || type.catalogString().equals("double");
    }

    private static void checkSameTypes(List<?> parts) throws Declined {
        String first = Catalyst.type((Expression) parts.get(0));
        for (Object part : parts) {
            if (!Catalyst.type((Expression) part).equals(first)) {
                throw new Declined("values of different types side by side");
            }
        }
    }

    /** Returns a value in Spark's own form. */
    private static String literal(Object value, DataType type) throws Declined {
        String name = type(type);
        if (value == null) {
            return "CAST(NULL AS " + name + ")";
        }
        String text = value.toString();
        if (name.equals("VARCHAR")) {
            if (text.indexOf('\0') >= 0 || text.indexOf('\uFFFD') >= 0) { // perhaps no text at all
                throw new Declined("a text with unusual characters");
            }
            return quoted(text);
        }
        if (name.equals("DATE")) {
            return "(DATE '1970-01-01' + " + text + ")";
        }
        if (name.equals("FLOAT") || name.equals("DOUBLE")) {
            if (!Double.isFinite(((Number) value).doubleValue())) {
                throw new Declined("a number that is not finite");
            }
        }
        return "CAST('" + text + "' AS " + name + ")";
    }

    private static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }

    /** Returns a cast that rounds nothing: of whole numbers and decimals. A decimal may have no room for a value. */
    private static String cast(Cast cast, String type) throws Declined {
        DataType from = cast.child().dataType();
        DataType to = cast.dataType();
        String old = from.catalogString();
        String wanted = to.catalogString();
        boolean fits = old.equals(wanted);
        String word = "CAST(";
        if (to instanceof DecimalType) {
            int room = ((DecimalType) to).precision() - ((DecimalType) to).scale();
            if (from instanceof DecimalType) {
                DecimalType given = (DecimalType) from;
                fits = ((DecimalType) to).scale() >= given.scale();
                if (room < given.precision() - given.scale() && !mode(cast).equals("ANSI")) {
                    word = "TRY_CAST("; // null, as in Spark
                }
            } else {
                fits = WHOLE.contains(old) && room >= DIGITS[WHOLE.indexOf(old)];
            }
        } else if (WHOLE.contains(old)) {
            boolean exact = wanted.equals("double") && !old.equals("bigint");
            fits = exact || WHOLE.indexOf(wanted) >= WHOLE.indexOf(old);
        } else if (old.equals("float")) {
            fits = wanted.equals("float") || wanted.equals("double");
        }
        if (!fits) {
            throw new Declined("a cast of " + old + " to " + wanted);
        }
        return word + of(cast.child()) + " AS " + type + ")";
    }

    /** Checks that a result is exact, or else an error in DuckDB. */
    private static void checkArithmetic(BinaryArithmetic one, String name) throws Declined {
        if (!OPERATORS.containsKey(name) || mode(one).equals("TRY")) {
            throw new Declined("expression " + name);
        }
        if (!(one.dataType() instanceof DecimalType)) {
            // DuckDB makes i < 9 of i + 1 < 10, which is another thing where i + 1 does not fit.
            if (!Catalyst.type(one).equals("double")) {
                throw new Declined("arithmetic of " + Catalyst.type(one));
            }
            return;
        }
        DecimalType a = (DecimalType) Catalyst.first(one).dataType();
        DecimalType b = (DecimalType) Catalyst.last(one).dataType();
        int scale = name.equals("Multiply") ? a.scale() + b.scale() : Math.max(a.scale(), b.scale());
        if (((DecimalType) one.dataType()).scale() != scale) {
            throw new Declined("decimals that are rounded");
        }
    }

    /** Returns what happens where a number does not fit: LEGACY, ANSI or TRY. */
    static String mode(Expression one) {
        for (int i = 0; i < ((Product) one).productArity(); i++) {
            Object part = ((Product) one).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression)
                    ? ((Product) part).productElement(0) : part; // within a context since Spark 4.1
            if (mode instanceof Enumeration.Value) {
                return mode.toString();
            }
        }
        return "";
    }

    private static String inSet(InSet in) throws Declined {
        List<Object> values = new ArrayList<>();
        scala.collection.Iterator<?> each = in.hset().iterator();
        while (each.hasNext()) {
            values.add(each.next());
        }
        checkComparable(Catalyst.each(in.children()));
        if (values.size() > LISTED || values.isEmpty()) {
            throw new Declined("a list of " + values.size() + " values");
        }
        StringBuilder found = new StringBuilder("(" + of(in.child()) + " IN (");
        for (int i = 0; i < values.size(); i++) {
            found.append(i == 0 ? "" : ", ").append(literal(values.get(i), in.child().dataType()));
        }
        return found.append("))").toString();
    }

    private static String like(Like like) throws Declined {
        if (!(like.right() instanceof Literal) || ((Literal) like.right()).value() == null) {
            throw new Declined("a pattern that is not constant");
        }
        String pattern = ((Literal) like.right()).value().toString();
        if (pattern.indexOf(like.escapeChar()) >= 0 || pattern.indexOf('\\') >= 0) {
            throw new Declined("a pattern with escaped characters");
        }
        return "(" + of(like.left()) + " LIKE " + literal(pattern, like.right().dataType()) + ")";
    }

    private static String caseWhen(CaseWhen one) throws Declined {
        List<Object> values = new ArrayList<>();
        StringBuilder found = new StringBuilder("(CASE");
        for (Object each : Catalyst.each(one.branches())) {
            scala.Tuple2<?, ?> branch = (scala.Tuple2<?, ?>) each;
            found.append(" WHEN ").append(of((Expression) branch._1())).append(" THEN ").append(of((Expression) branch._2()));
            values.add(branch._2());
        }
        Option<?> other = one.elseValue();
        if (other.isDefined()) {
            values.add(other.get());
            found.append(" ELSE ").append(of((Expression) other.get()));
        }
        checkSameTypes(values);
        return found.append(" END)").toString();
    }

    /** Returns a part of a text, counted from its beginning. */
    private static String substring(List<?> parts) throws Declined {
        for (int i = 1; i < 3; i++) {
            Object value = parts.get(i) instanceof Literal ? ((Literal) parts.get(i)).value() : null;
            if (!(value instanceof Integer) || ((Integer) value).intValue() < 2 - i) {
                throw new Declined("a part of a text that is not counted from its beginning");
            }
        }
        return "substring(" + listed(parts) + ")";
    }

    /** Whether a type is a decimal that ten thousand million rows cannot fill when they are summed. */
    static boolean isSummedExactly(DataType type) {
        return type instanceof DecimalType
                && ((DecimalType) type).precision() + 10 <= DecimalType.MAX_PRECISION();
    }

    static boolean isWhole(DataType type) {
        return WHOLE.contains(type.catalogString());
    }

    /** Whether an expression is a whole number that some thousand million rows cannot fill when they are summed as bigint. */
    static boolean isSmall(Expression one) {
        return !Catalyst.type(one).equals("bigint") || Catalyst.name(one).equals("UnscaledValue");
    }

    /** Returns zero, of a decimal type. */
    static String zero(DataType type) throws Declined {
        return literal(BigDecimal.ZERO, type);
    }

    /** Returns the largest number of a sum of decimals. */
    static String largest(DataType type) throws Declined {
        int scale = ((DecimalType) type).scale();
        DecimalType sum = new DecimalType(DecimalType.MAX_PRECISION(), scale);
        return literal(BigDecimal.TEN.pow(DecimalType.MAX_PRECISION()).subtract(BigDecimal.ONE).movePointLeft(scale), sum);
    }
}
