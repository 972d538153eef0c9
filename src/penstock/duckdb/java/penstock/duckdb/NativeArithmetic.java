package penstock.duckdb;

import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Arithmetic in DuckDB's SQL: the same result as in Spark, or an error; see `NativeSql`. */
final class NativeArithmetic {
    private static final Map<String, Object> OPERATORS = Catalyst.pairs("Add + Subtract - Multiply *");

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
        } else if (NumericTypes.isInteger(operation.dataType())) {
            String result = "(" + NativeSql.of(left) + " " + OPERATORS.get(name) + " " + NativeSql.of(right) + ")";
            // `greatest` stops DuckDB from rewriting i + 1 < 10 to i < 9 and sum(i + 1) to sum(i) + count(i).
            return left instanceof Literal || right instanceof Literal ? "greatest" + result : result;
        } else if (!Catalyst.type(operation).equals("double")) {
            throw new Declined("arithmetic of " + Catalyst.type(operation));
        }
        return "CAST((" + NativeSql.of(left) + " " + OPERATORS.get(name) + " " + NativeSql.of(right) + ") AS " + type + ")";
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
