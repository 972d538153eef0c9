package penstock.duckdb;

import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** Arithmetic in DuckDB's SQL: exact or an error; see `NativeSql`. */
final class NativeArithmetic {
    private static final Set<String> OPERATIONS = Catalyst.words("Add Subtract Multiply");

    static String of(BinaryArithmetic operation) throws NativeSql.Declined {
        String name = Catalyst.name(operation);
        String type = NativeTypes.nameOf(operation.dataType());
        if (NumericTypes.overflowMode(operation).equals("TRY") || !name.equals("Divide") && !OPERATIONS.contains(name)) {
            throw new NativeSql.Declined("expression " + name);
        }
        Expression first = Catalyst.first(operation);
        Expression last = Catalyst.last(operation);
        if (name.equals("Divide")) {
            String zero = operation.failOnError() ? "error('division by zero')" : "CAST(NULL AS " + type + ")";
            return operation.dataType() instanceof DecimalType ? ofDecimals(operation, zero) : ofDoubles(operation, zero);
        }
        if (operation.dataType() instanceof DecimalType) {
            checkScale(operation, name);
        } else if (NumericTypes.isInteger(operation.dataType())) {
            String sum = "(" + NativeSql.of(first) + " " + NativeSql.OPERATORS.get(name) + " " + NativeSql.of(last) + ")";
            // DuckDB rewrites i + 1 < 10 to i < 9, and sum(i + 1) to sum(i) + count(i), which differ if i + 1 overflows.
            return first instanceof Literal || last instanceof Literal ? "greatest" + sum : sum;
        } else if (!Catalyst.type(operation).equals("double")) {
            throw new NativeSql.Declined("arithmetic of " + Catalyst.type(operation));
        }
        return "CAST((" + NativeSql.of(first) + " " + NativeSql.OPERATORS.get(name) + " " + NativeSql.of(last) + ") AS " + type + ")";
    }

    /** Checks that DuckDB's result is exact or an error. */
    private static void checkScale(BinaryArithmetic operation, String name) throws NativeSql.Declined {
        DecimalType a = (DecimalType) Catalyst.first(operation).dataType();
        DecimalType b = (DecimalType) Catalyst.last(operation).dataType();
        int scale = name.equals("Multiply") ? a.scale() + b.scale() : Math.max(a.scale(), b.scale());
        boolean isRounded = ((DecimalType) operation.dataType()).scale() != scale;
        if (isRounded && (!name.equals("Multiply") || scale > DecimalType.MAX_SCALE())) { // a cast of a product rounds like Spark
            throw new NativeSql.Declined("decimals that are rounded");
        }
    }

    private static String ofDoubles(BinaryArithmetic operation, String zero) throws NativeSql.Declined {
        if (!Catalyst.type(operation).equals("double")) {
            throw new NativeSql.Declined("arithmetic of " + Catalyst.type(operation));
        }
        String divisor = NativeSql.of(Catalyst.last(operation));
        return "(CASE WHEN " + divisor + " = 0 THEN " + zero + " ELSE " + NativeSql.of(Catalyst.first(operation)) + " / " + divisor + " END)";
    }

    private static String ofDecimals(BinaryArithmetic operation, String zero) throws NativeSql.Declined {
        Expression first = Catalyst.first(operation);
        Expression last = Catalyst.last(operation);
        return NativeDecimals.quotient(NativeSql.of(first), (DecimalType) first.dataType(), NativeSql.of(last),
                (DecimalType) last.dataType(), (DecimalType) operation.dataType(), zero);
    }
}
