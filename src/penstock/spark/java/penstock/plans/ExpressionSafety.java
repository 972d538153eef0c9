package penstock.plans;

import java.math.BigDecimal;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.JsonToStructs;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

import scala.collection.immutable.Seq;

/** Decides which expressions cannot raise an error on any row. Unsupported expressions and types count as unsafe. */
public final class ExpressionSafety {
    /** Expressions that return a value or null for all values of their children. */
    private static final Set<String> SAFE = Catalyst.words("AttributeReference Literal Alias And Or Not EqualTo EqualNullSafe LessThan "
            + "LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet IsNull IsNotNull IsNaN If CaseWhen Coalesce "
            + "NaNvl Greatest Least KnownNotNull KnownNullable KnownFloatingPointNormalized NormalizeNaNAndZero "
            + "AtLeastNNonNulls StartsWith EndsWith Contains Substring Upper Lower StringTrim StringTrimLeft "
            + "StringTrimRight Length BitLength OctetLength Concat ConcatWs StringReplace StringTranslate StringInstr "
            + "StringLocate Reverse Ascii Md5 Sha1 Sha2 Hex Bin Levenshtein BitwiseAnd BitwiseOr BitwiseXor BitwiseNot "
            + "BitwiseCount ShiftLeft ShiftRight ShiftRightUnsigned Signum Sqrt UnaryPositive UnixDate "
            + "Year Quarter Month DayOfMonth DayOfWeek WeekDay DayOfYear WeekOfYear YearOfWeek "
            + "UnscaledValue MakeDecimal " // the optimizer uses these two for sums that fit their type
            + "Hour Minute Second UnixMicros UnixMillis UnixSeconds TruncTimestamp PreciseTimestampConversion "
            + "Empty2Null " // Spark applies it to partition columns
            + "DateAdd DateSub DateDiff Murmur3Hash XxHash64 CollationKey GetStructField CreateNamedStruct SortOrder "
            + "DynamicPruningSubquery DynamicPruningExpression BloomFilterMightContain "
            + "AggregateExpression Count Min Max First Last MinBy MaxBy BitAndAgg BitOrAgg BitXorAgg StddevSamp "
            + "StddevPop VarianceSamp VariancePop Skewness Kurtosis Corr CovPopulation CovSample CollectList "
            + "CollectSet HyperLogLogPlusPlus WindowExpression WindowSpecDefinition RowNumber Rank DenseRank "
            + "PercentRank CumeDist Lead Lag UnboundedPreceding UnboundedFollowing CurrentRow Explode PosExplode "
            + "Inline Stack ReplicateRows Size GetJsonObject");

    /** Functions whose operands after the first are constants of a regular expression. */
    private static final Set<String> REGEX_FUNCTIONS = Catalyst.words("RLike RegExpExtract RegExpReplace");
    /** Functions whose second operand is the number of characters or copies of the result. */
    private static final Set<String> SIZED_FUNCTIONS = Catalyst.words("StringLPad StringRPad StringRepeat");
    private static final BigDecimal MAX_SIZE = new BigDecimal(10_000);
    /** Digits of the integer types by DecimalType.forType, in the order of `NumericTypes.INTEGERS`. */
    private static final int[] INTEGER_DIGITS = {3, 5, 10, 20};
    /** Types between which every cast either cannot fail or fails only in ANSI mode. */
    private static final Set<String> CONVERTIBLE = Catalyst.words("tinyint smallint int bigint float double boolean string date");

    /** Whether none of the expressions can raise an error. */
    public static boolean cannotFail(Seq<?> expressions) {
        for (Object expression : Catalyst.each(expressions)) {
            if (!cannotFail((Expression) expression)) {
                return false;
            }
        }
        return true;
    }

    /** Whether an expression cannot raise an error; false for unsupported expressions. */
    public static boolean cannotFail(Expression expression) {
        if (expression instanceof CaseWhen) {
            return caseCannotFail((CaseWhen) expression);
        }
        String name = Catalyst.name(expression);
        boolean isSafe = SAFE.contains(name);
        if (expression instanceof Cast) {
            isSafe = castCannotFail((Cast) expression);
        } else if (expression instanceof BinaryArithmetic && !isSafe) {
            isSafe = arithmeticCannotFail((BinaryArithmetic) expression, name);
        } else if (expression instanceof Like) {
            isSafe = PatternSafety.hasValidPattern((Like) expression);
        } else if (name.equals("Sum") || name.equals("Average")) {
            isSafe = cannotOverflow(expression);
        } else if (name.equals("UnaryMinus") || name.equals("Abs")) {
            DataType type = expression.dataType(); // Spark rounds a longer decimal to 34 digits, which may not fit
            isSafe = NumericTypes.isFloating(type) || type instanceof DecimalType && ((DecimalType) type).precision() <= 34;
        } else if (name.equals("SpecifiedWindowFrame")) { // bounds of a RANGE frame are sums, which may overflow
            isSafe = expression.sql().startsWith("ROWS") || !(Catalyst.first(expression) instanceof Literal)
                    && !(Catalyst.last(expression) instanceof Literal);
        } else if (expression instanceof StaticInvoke) { // pads a CHAR(n)
            isSafe = ((StaticInvoke) expression).functionName().equals("readSidePadding");
        } else if (expression instanceof JsonToStructs) { // by default, a malformed text is null; but Spark 2 may have parsed it
            isSafe = ((JsonToStructs) expression).options().isEmpty() && !SQLConf.get().legacyTimeParserPolicy().toString().equals("EXCEPTION");
        } else if (REGEX_FUNCTIONS.contains(name)) {
            isSafe = PatternSafety.regexCannotFail(Catalyst.each(expression.children()), name);
        } else if (SIZED_FUNCTIONS.contains(name)) { // a long result may not fit into memory
            BigDecimal size = number((Expression) (Object) expression.children().apply(1));
            isSafe = size != null && size.compareTo(MAX_SIZE) <= 0;
        } else if (name.equals("Round")) {
            BigDecimal scale = number(Catalyst.last(expression));
            isSafe = scale != null && scale.signum() >= 0; // a negative scale may round up beyond the type
        } else if (name.equals("Ceil") || name.equals("Floor")) {
            isSafe = !NumericTypes.isFloating(Catalyst.first(expression).dataType());
        }
        return isSafe && cannotFail(expression.children());
    }

    private static boolean castCannotFail(Cast cast) {
        String sourceName = Catalyst.type(cast.child());
        String targetName = Catalyst.type(cast);
        DataType source = cast.child().dataType();
        if (sourceName.equals(targetName) || sourceName.equals("void") || sourceName.equals("string") && targetName.equals("binary")) {
            return true;
        }
        if (cast.dataType() instanceof DecimalType) {
            int integerDigits = ((DecimalType) cast.dataType()).precision() - ((DecimalType) cast.dataType()).scale();
            if (source instanceof DecimalType) {
                DecimalType decimal = (DecimalType) source;
                boolean retainsScale = ((DecimalType) cast.dataType()).scale() >= decimal.scale();
                return retainsScale && integerDigits >= decimal.precision() - decimal.scale();
            }
            return NumericTypes.isInteger(source) && integerDigits >= INTEGER_DIGITS[NumericTypes.INTEGERS.indexOf(sourceName)];
        }
        if (source instanceof DecimalType) {
            return NumericTypes.isFloating(cast.dataType()) || targetName.equals("string");
        }
        if (sourceName.startsWith("timestamp")) {
            return targetName.equals("date") || targetName.equals("string") || targetName.equals("bigint");
        }
        if (!CONVERTIBLE.contains(sourceName) || !CONVERTIBLE.contains(targetName)) {
            return false;
        }
        boolean isInteger = NumericTypes.isInteger(source);
        boolean isWidened = isInteger && NumericTypes.INTEGERS.indexOf(targetName) > NumericTypes.INTEGERS.indexOf(sourceName);
        boolean becomesFloating = NumericTypes.isFloating(cast.dataType()) && (isInteger || NumericTypes.isFloating(source));
        return isWidened || becomesFloating || targetName.equals("string") || !cast.ansiEnabled();
    }

    private static boolean arithmeticCannotFail(BinaryArithmetic operation, String name) {
        DataType result = operation.dataType();
        DataType left = Catalyst.first(operation).dataType();
        Expression right = Catalyst.last(operation);
        boolean isDecimal = result instanceof DecimalType;
        if (!isDecimal && !NumericTypes.isFloating(result) && !NumericTypes.isInteger(result)) {
            return false;
        }
        boolean isDivision = Catalyst.words("Divide IntegralDivide Remainder Pmod").contains(name);
        if (!isDivision && !Catalyst.words("Add Subtract Multiply").contains(name)) {
            return false;
        }
        if (!operation.failOnError()) {
            return true;
        }
        if (isDivision) {
            return (!isDecimal || quotientFits(operation)) && isNeitherZeroNorMinusOne(right);
        }
        if (!isDecimal) {
            return NumericTypes.isFloating(result);
        }
        DecimalType a = (DecimalType) left;
        DecimalType b = (DecimalType) right.dataType();
        int digits = name.equals("Multiply") ? a.precision() + b.precision() + 1
                : Math.max(a.scale(), b.scale()) + Math.max(a.precision() - a.scale(), b.precision() - b.scale()) + 1;
        return digits <= DecimalType.MAX_PRECISION();
    }

    /** Whether a quotient of decimals fits its type, unless the divisor is zero. */
    private static boolean quotientFits(BinaryArithmetic quotient) {
        DecimalType type = (DecimalType) quotient.dataType();
        DecimalType a = (DecimalType) Catalyst.first(quotient).dataType();
        DecimalType b = (DecimalType) Catalyst.last(quotient).dataType();
        boolean hasIntegerDigits = type.precision() - type.scale() >= a.precision() - a.scale() + b.scale();
        return Catalyst.name(quotient).equals("Divide") && hasIntegerDigits || type.precision() < DecimalType.MAX_PRECISION();
    }

    /** Whether a value cannot fail where `condition` is true, which may imply that its divisors are positive. */
    private static boolean isGuarded(Expression value, Expression condition) {
        if (cannotFail(value)) {
            return true;
        }
        boolean isGuarded = SAFE.contains(Catalyst.name(value)) || isQuotientBy(value, condition);
        for (Expression part : Catalyst.each(value.children())) {
            isGuarded = isGuarded && isGuarded(part, condition);
        }
        return isGuarded;
    }

    /** Whether a value is a quotient that fits its type, and `condition` implies a positive divisor (`divisor > 0`). */
    private static boolean isQuotientBy(Expression value, Expression condition) {
        if (!(condition instanceof GreaterThan) || !Catalyst.name(value).equals("Divide")) {
            return false;
        }
        BigDecimal least = number(Catalyst.last(condition));
        Expression divisor = Catalyst.last(value);
        boolean isDecimal = value.dataType() instanceof DecimalType;
        if (divisor instanceof Cast && NumericTypes.isInteger(Catalyst.first(divisor).dataType())) {
            divisor = Catalyst.first(divisor); // an integer is zero exactly if its cast is
        }
        return least != null && least.signum() >= 0 && Catalyst.first(condition).semanticEquals(divisor)
                && (isDecimal ? quotientFits((BinaryArithmetic) value) : NumericTypes.isFloating(value.dataType()));
    }

    private static boolean caseCannotFail(CaseWhen expression) {
        for (scala.Tuple2<?, ?> branch : Catalyst.each(expression.branches())) {
            Expression condition = (Expression) branch._1();
            Expression value = (Expression) branch._2();
            if (!cannotFail(condition) || !isGuarded(value, condition)) {
                return false;
            }
        }
        return expression.elseValue().isEmpty() || cannotFail((Expression) (Object) expression.elseValue().get());
    }

    private static boolean isNeitherZeroNorMinusOne(Expression divisor) {
        BigDecimal value = number(divisor); // the smallest integer divided by -1 overflows
        return value != null && value.signum() != 0 && value.compareTo(BigDecimal.ONE.negate()) != 0;
    }

    /** Returns the value of a numeric literal, null for other expressions. */
    static BigDecimal number(Expression expression) {
        try {
            return expression instanceof Literal ? new BigDecimal(String.valueOf(((Literal) expression).value())) : null;
        } catch (NumberFormatException notANumber) {
            return null;
        }
    }

    /** Whether a sum or average and its partial results cannot overflow to null or to an error. */
    public static boolean cannotOverflow(Expression function) {
        Expression child = Catalyst.first(function);
        if (child.dataType() instanceof DecimalType) {
            return NumericTypes.isSummedExactly(child.dataType());
        }
        if (Catalyst.name(child).equals("UnscaledValue")) {
            return true; // the optimizer sums unscaled values only if the sum fits a long
        }
        if (Catalyst.type(child).equals("bigint")) { // an average sums doubles; a LEGACY sum wraps around
            return Catalyst.name(function).equals("Average") || NumericTypes.overflowMode(function).equals("LEGACY");
        }
        return NumericTypes.isFloating(child.dataType()) || NumericTypes.isInteger(child.dataType());
    }
}
