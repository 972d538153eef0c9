package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.Enumeration;
import scala.Product;
import scala.collection.immutable.Seq;

/** Tells which expressions can raise no error, whatever the rows hold. A type that is not known can. */
public final class ExpressionSafety {
    /** Expressions that give a value, or null, of any values. */
    private static final Set<String> SAFE = words("AttributeReference Literal Alias And Or Not EqualTo EqualNullSafe LessThan "
            + "LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet IsNull IsNotNull IsNaN If CaseWhen Coalesce "
            + "NaNvl Greatest Least KnownNotNull KnownNullable KnownFloatingPointNormalized NormalizeNaNAndZero "
            + "AtLeastNNonNulls StartsWith EndsWith Contains Substring Upper Lower StringTrim StringTrimLeft "
            + "StringTrimRight Length Concat ConcatWs Year Quarter Month DayOfMonth DayOfWeek WeekDay DayOfYear "
            + "UnscaledValue MakeDecimal " // the optimiser makes them of sums that have a place in the type
            + "Empty2Null " // of a column that names folders
            + "DateAdd DateSub DateDiff Murmur3Hash XxHash64 CollationKey GetStructField CreateNamedStruct SortOrder "
            + "DynamicPruningSubquery DynamicPruningExpression BloomFilterMightContain "
            + "AggregateExpression Count Min Max First Last MinBy MaxBy BitAndAgg BitOrAgg BitXorAgg StddevSamp "
            + "StddevPop VarianceSamp VariancePop Skewness Kurtosis Corr CovPopulation CovSample CollectList "
            + "CollectSet HyperLogLogPlusPlus WindowExpression WindowSpecDefinition RowNumber Rank DenseRank "
            + "PercentRank CumeDist Lead Lag UnboundedPreceding UnboundedFollowing CurrentRow Explode PosExplode "
            + "Inline Stack ReplicateRows");

    private static final List<String> WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    private static final int[] DIGITS = {3, 5, 10, 20};
    private static final Set<String> FLOATING = words("float double");
    private static final Set<String> CONVERTIBLE = words("tinyint smallint int bigint float double boolean string date");

    /** A sum of decimals has so many digits more: more than ten thousand million rows are needed to fill them. */
    private static final int DIGITS_OF_SUM = 10;

    static Set<String> words(String text) {
        return new HashSet<>(Arrays.asList(text.split(" ")));
    }

    /** Whether none of some expressions can raise an error, whatever the rows hold; no for all that is not known. */
    static boolean cannotFail(Seq<?> expressions) {
        for (Object expression : Catalyst.each(expressions)) {
            if (!cannotFail((Expression) expression)) {
                return false;
            }
        }
        return true;
    }

    /** Whether an expression can raise no error; no for all that is not known. */
    static boolean cannotFail(Expression one) {
        if (one instanceof CaseWhen) {
            return caseCannotFail((CaseWhen) one);
        }
        String name = Catalyst.name(one);
        boolean safe = SAFE.contains(name);
        if (one instanceof Cast) {
            safe = castCannotFail((Cast) one);
        } else if (one instanceof BinaryArithmetic) {
            safe = arithmeticCannotFail((BinaryArithmetic) one, name);
        } else if (one instanceof Like) {
            Like like = (Like) one;
            safe = like.right() instanceof Literal && String.valueOf(like.right()).indexOf(like.escapeChar()) < 0;
        } else if (name.equals("Sum") || name.equals("Average")) {
            safe = isSafeSum(one);
        } else if (name.equals("UnaryMinus") || name.equals("Abs")) {
            safe = FLOATING.contains(Catalyst.type(one)) || one.dataType() instanceof DecimalType;
        } else if (name.equals("SpecifiedWindowFrame")) { // bounds of ranges are sums
            safe = one.sql().startsWith("ROWS") || !(Catalyst.first(one) instanceof Literal)
                    && !(Catalyst.last(one) instanceof Literal);
        } else if (one instanceof StaticInvoke) { // of CHAR(n)
            safe = ((StaticInvoke) one).functionName().equals("readSidePadding");
        }
        return safe && cannotFail(one.children());
    }

    private static boolean castCannotFail(Cast cast) {
        String from = Catalyst.type(cast.child());
        String to = Catalyst.type(cast);
        DataType given = cast.child().dataType();
        if (from.equals(to) || from.equals("void")) {
            return true;
        }
        if (cast.dataType() instanceof DecimalType) {
            int room = ((DecimalType) cast.dataType()).precision() - ((DecimalType) cast.dataType()).scale();
            if (given instanceof DecimalType) {
                DecimalType old = (DecimalType) given;
                boolean keeps = ((DecimalType) cast.dataType()).scale() >= old.scale();
                return keeps && room >= old.precision() - old.scale();
            }
            return WHOLE.contains(from) && room >= DIGITS[WHOLE.indexOf(from)];
        }
        if (given instanceof DecimalType) {
            return FLOATING.contains(to) || to.equals("string");
        }
        if (!CONVERTIBLE.contains(from) || !CONVERTIBLE.contains(to)) {
            return false;
        }
        boolean widens = WHOLE.contains(from) && WHOLE.indexOf(to) > WHOLE.indexOf(from);
        boolean floats = FLOATING.contains(to) && (WHOLE.contains(from) || FLOATING.contains(from));
        return widens || floats || to.equals("string") || !cast.ansiEnabled();
    }

    private static boolean arithmeticCannotFail(BinaryArithmetic one, String name) {
        String type = Catalyst.type(one);
        DataType result = one.dataType();
        DataType left = Catalyst.first(one).dataType();
        Expression right = Catalyst.last(one);
        boolean decimal = result instanceof DecimalType;
        if (!decimal && !FLOATING.contains(type) && !WHOLE.contains(type)) {
            return false;
        }
        boolean divides = words("Divide IntegralDivide Remainder Pmod").contains(name);
        if (!divides && !words("Add Subtract Multiply").contains(name)) {
            return false;
        }
        if (!one.failOnError()) {
            return true;
        }
        if (divides) {
            return (!decimal || quotientFits(one)) && isNeitherZeroNorMinusOne(right);
        }
        if (!decimal) {
            return FLOATING.contains(type);
        }
        DecimalType a = (DecimalType) left;
        DecimalType b = (DecimalType) right.dataType();
        int digits = name.equals("Multiply") ? a.precision() + b.precision() + 1
                : Math.max(a.scale(), b.scale()) + Math.max(a.precision() - a.scale(), b.precision() - b.scale()) + 1;
        return digits <= DecimalType.MAX_PRECISION();
    }

    /** Whether a quotient of decimals has a place in its type, unless the divisor is zero. */
    private static boolean quotientFits(BinaryArithmetic one) {
        DecimalType wanted = (DecimalType) one.dataType();
        DecimalType a = (DecimalType) Catalyst.first(one).dataType();
        DecimalType b = (DecimalType) Catalyst.last(one).dataType();
        boolean hasRoom = wanted.precision() - wanted.scale() >= a.precision() - a.scale() + b.scale();
        return Catalyst.name(one).equals("Divide") && hasRoom || wanted.precision() < DecimalType.MAX_PRECISION();
    }

    /** Whether a value can fail in nothing but quotients of which a condition says that the divisor is positive. */
    private static boolean isGuarded(Expression value, Expression condition) {
        if (cannotFail(value)) {
            return true;
        }
        boolean isGuarded = SAFE.contains(Catalyst.name(value)) || isQuotientBy(value, condition);
        for (Object part : Catalyst.each(value.children())) {
            isGuarded = isGuarded && isGuarded((Expression) part, condition);
        }
        return isGuarded;
    }

    /** Whether a value is a quotient that fits, of which a condition says that the divisor is positive. */
    private static boolean isQuotientBy(Expression value, Expression condition) {
        if (!(condition instanceof GreaterThan) || !Catalyst.name(value).equals("Divide")) {
            return false;
        }
        BigDecimal least = number(Catalyst.last(condition));
        Expression divisor = Catalyst.last(value);
        boolean isDecimal = value.dataType() instanceof DecimalType;
        if (divisor instanceof Cast && WHOLE.contains(Catalyst.type(Catalyst.first(divisor)))) {
            divisor = Catalyst.first(divisor); // no whole number but zero is zero as a decimal or double
        }
        return least != null && least.signum() >= 0 && Catalyst.first(condition).semanticEquals(divisor)
                && (isDecimal ? quotientFits((BinaryArithmetic) value) : FLOATING.contains(Catalyst.type(value)));
    }

    private static boolean caseCannotFail(CaseWhen one) {
        for (Object each : Catalyst.each(one.branches())) {
            scala.Tuple2<?, ?> branch = (scala.Tuple2<?, ?>) each;
            Expression condition = (Expression) branch._1();
            Expression value = (Expression) branch._2();
            if (!cannotFail(condition) || !isGuarded(value, condition)) {
                return false;
            }
        }
        return one.elseValue().isEmpty() || cannotFail((Expression) (Object) one.elseValue().get());
    }

    private static boolean isNeitherZeroNorMinusOne(Expression divisor) {
        BigDecimal value = number(divisor);
        return value != null && value.signum() != 0 && value.compareTo(BigDecimal.ONE.negate()) != 0;
    }

    /** Returns the number that an expression is, null if it is something else. */
    private static BigDecimal number(Expression one) {
        try {
            return one instanceof Literal ? new BigDecimal(String.valueOf(((Literal) one).value())) : null;
        } catch (NumberFormatException notANumber) {
            return null;
        }
    }

    /** Whether a sum or mean of any rows, and of its partial results, overflows neither to null nor to an error. */
    public boolean cannotOverflow(Expression function) {
        return isSafeSum(function);
    }

    private static boolean isSafeSum(Expression function) {
        Expression child = Catalyst.first(function);
        if (child.dataType() instanceof DecimalType) {
            return ((DecimalType) child.dataType()).precision() + DIGITS_OF_SUM <= DecimalType.MAX_PRECISION();
        }
        String type = Catalyst.type(child);
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return true; // the optimiser makes them of decimals whose sum has a place in a long integer
        }
        if (type.equals("bigint")) {
            return Catalyst.name(function).equals("Average") || wrapsAround(function); // a mean's sum is a double
        }
        return FLOATING.contains(type) || WHOLE.contains(type);
    }

    /** Whether a sum of long integers wraps around where it overflows, as without ANSI: then its order does not matter. */
    private static boolean wrapsAround(Expression sum) {
        for (int i = 0; i < ((Product) sum).productArity(); i++) {
            Object part = ((Product) sum).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression) && ((Product) part).productArity() > 0
                    ? ((Product) part).productElement(0) : part; // within a context since Spark 4.1
            if (mode instanceof Enumeration.Value) {
                return mode.toString().equals("LEGACY");
            }
        }
        return false;
    }
}
