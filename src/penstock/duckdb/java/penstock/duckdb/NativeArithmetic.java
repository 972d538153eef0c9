package penstock.duckdb;

import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Arithmetic in DuckDB's SQL: the same result as in Spark, or an error; see `NativeSql`. */
final class NativeArithmetic {
    private static final Map<String, Object> OPERATORS = Catalyst.pairs("Add + Subtract - Multiply *");
    /** The digits of decimals that DuckDB stores in 64 bits. */
    private static final int SHORT_DIGITS = 18;
    /** The bits of integer types that are smaller than those to which they are cast. */
    private static final Map<String, Object> BITS = Catalyst.pairs("tinyint 8 smallint 16 int 32");

    static String of(BinaryArithmetic operation) throws Declined {
        String name = Catalyst.name(operation);
        String type = NativeTypes.nameOf(operation.dataType());
        if (NumericTypes.overflowMode(operation).equals("TRY") || !name.equals("Divide") && !OPERATORS.containsKey(name)) {
            throw new Declined("expression " + name);
        }
        Expression left = Catalyst.first(operation);
        Expression right = Catalyst.last(operation);
        if (name.equals("Divide")) {
            String ifZero = operation.failOnError() ? "error('division by zero')" : "CAST(NULL AS " + type + ")";
            if (!(operation.dataType() instanceof DecimalType)) {
                return quotientOfDoubles(operation, ifZero);
            }
            return NativeDecimals.quotient(NativeSql.of(left), (DecimalType) left.dataType(), NativeSql.of(right), (DecimalType) right.dataType(),
                    (DecimalType) operation.dataType(), ifZero);
        }
        if (operation.dataType() instanceof DecimalType) {
            checkScale(operation, name);
            if (isShortProduct(operation)) { // a macro of `penstock.duckdb.worker.products`
                DecimalType decimal = (DecimalType) operation.dataType();
                String macro = "product_" + decimal.precision() + "_" + decimal.scale() + "_" + ((DecimalType) left.dataType()).scale();
                return macro + "(" + NativeSql.of(left) + ", " + NativeSql.of(right) + ")";
            }
        } else if (NumericTypes.isInteger(operation.dataType())) {
            String result = "(" + NativeSql.of(left) + " " + OPERATORS.get(name) + " " + NativeSql.of(right) + ")";
            // `greatest` stops DuckDB from rewriting i + 1 < 10 to i < 9 and sum(i + 1) to sum(i) + count(i), without overflows.
            boolean isRewritten = (left instanceof Literal || right instanceof Literal) && !cannotOverflow(left, right, name);
            return isRewritten ? "greatest" + result : result;
        } else if (!Catalyst.type(operation).equals("double")) {
            throw new Declined("arithmetic of " + Catalyst.type(operation));
        }
        return "CAST((" + NativeSql.of(left) + " " + OPERATORS.get(name) + " " + NativeSql.of(right) + ") AS " + type + ")";
    }

    /**
     * Whether an expression is a product of decimals that may be long by its type, but that DuckDB computes in 64 bits: its
     * factors have up to 18 digits, and its scale is less than 18. Spark must not round the product.
     */
    static boolean isShortProduct(Expression expression) {
        if (!Catalyst.name(expression).equals("Multiply") || !(expression.dataType() instanceof DecimalType)) {
            return false;
        }
        DecimalType type = (DecimalType) expression.dataType();
        Expression left = Catalyst.first(expression);
        Expression right = Catalyst.last(expression);
        boolean isExact = type.scale() == ((DecimalType) left.dataType()).scale() + ((DecimalType) right.dataType()).scale();
        return isExact && type.precision() > SHORT_DIGITS && type.scale() < SHORT_DIGITS && isShortFactor(left) && isShortFactor(right);
    }

    private static boolean isShortFactor(Expression factor) {
        return ((DecimalType) factor.dataType()).precision() <= SHORT_DIGITS || isShortProduct(factor);
    }

    /** Whether no value of a column can overflow, as it was cast from a smaller type, and the constant is small enough. */
    private static boolean cannotOverflow(Expression left, Expression right, String operator) {
        Expression operand = left instanceof Literal ? right : left;
        Object constant = ((Literal) (left instanceof Literal ? left : right)).value();
        String type = Catalyst.type(operand);
        Object bits = operand instanceof Cast ? BITS.get(Catalyst.type(((Cast) operand).child())) : null;
        if (bits == null || constant == null || !type.equals("int") && !type.equals("bigint")) {
            return false;
        }
        double largest = Math.pow(2, Integer.parseInt((String) bits) - 1);
        double absolute = Math.abs(((Number) constant).doubleValue());
        double result = operator.equals("Multiply") ? largest * absolute : largest + absolute;
        return result < (type.equals("int") ? Integer.MAX_VALUE : Long.MAX_VALUE);
    }

    /** Checks that DuckDB computes the same decimal as Spark, or raises an error. */
    private static void checkScale(BinaryArithmetic operation, String name) throws Declined {
        DecimalType a = (DecimalType) Catalyst.first(operation).dataType();
        DecimalType b = (DecimalType) Catalyst.last(operation).dataType();
        int scale = name.equals("Multiply") ? a.scale() + b.scale() : Math.max(a.scale(), b.scale());
        boolean isRounded = ((DecimalType) operation.dataType()).scale() != scale;
        if (isRounded && (!name.equals("Multiply") || scale > DecimalType.MAX_SCALE())) { // a cast of a product rounds like Spark
            throw new Declined("decimals that are rounded");
        }
    }

    private static String quotientOfDoubles(BinaryArithmetic operation, String ifZero) throws Declined {
        if (!Catalyst.type(operation).equals("double")) {
            throw new Declined("arithmetic of " + Catalyst.type(operation));
        }
        String divisor = NativeSql.of(Catalyst.last(operation));
        return "(CASE WHEN " + divisor + " = 0 THEN " + ifZero + " ELSE " + NativeSql.of(Catalyst.first(operation)) + " / " + divisor + " END)";
    }
}
