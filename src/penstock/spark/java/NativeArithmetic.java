package penstock;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

/** Arithmetic in the SQL of DuckDB: exact, or an error; see `NativeSql`. */
final class NativeArithmetic {
    private static final Set<String> SPELLED = new HashSet<>(Arrays.asList("Add", "Subtract", "Multiply"));

    private NativeArithmetic() {
    }

    /** Returns a sum, difference, product or quotient. */
    static String of(BinaryArithmetic one) throws NativeSql.Declined {
        String name = Catalyst.name(one);
        String type = NativeTypes.nameOf(one.dataType());
        if (NativeTypes.mode(one).equals("TRY") || !name.equals("Divide") && !SPELLED.contains(name)) {
            throw new NativeSql.Declined("expression " + name);
        }
        Expression first = Catalyst.first(one);
        Expression last = Catalyst.last(one);
        if (name.equals("Divide")) {
            String zero = one.failOnError() ? "error('division by zero')" : "CAST(NULL AS " + type + ")";
            return one.dataType() instanceof DecimalType ? ofDecimals(one, zero) : ofDoubles(one, zero);
        }
        if (one.dataType() instanceof DecimalType) {
            checkScale(one, name);
        } else if (NativeTypes.isWhole(one.dataType())) {
            String sum = "(" + NativeSql.of(first) + " " + NativeSql.operator(name) + " " + NativeSql.of(last) + ")";
            // DuckDB makes i < 9 of i + 1 < 10, and sum(i) + count(i) of sum(i + 1): other things where i + 1 does not fit.
            return first instanceof Literal || last instanceof Literal ? "greatest" + sum : sum;
        } else if (!Catalyst.type(one).equals("double")) {
            throw new NativeSql.Declined("arithmetic of " + Catalyst.type(one));
        }
        return "CAST((" + NativeSql.of(first) + " " + NativeSql.operator(name) + " " + NativeSql.of(last) + ") AS " + type + ")";
    }

    /** Checks that a result is exact, or else an error in DuckDB. */
    private static void checkScale(BinaryArithmetic one, String name) throws NativeSql.Declined {
        DecimalType a = (DecimalType) Catalyst.first(one).dataType();
        DecimalType b = (DecimalType) Catalyst.last(one).dataType();
        int scale = name.equals("Multiply") ? a.scale() + b.scale() : Math.max(a.scale(), b.scale());
        boolean isRounded = ((DecimalType) one.dataType()).scale() != scale;
        if (isRounded && (!name.equals("Multiply") || scale > DecimalType.MAX_SCALE())) { // a cast of a product rounds as Spark does
            throw new NativeSql.Declined("decimals that are rounded");
        }
    }

    private static String ofDoubles(BinaryArithmetic one, String zero) throws NativeSql.Declined {
        if (!Catalyst.type(one).equals("double")) {
            throw new NativeSql.Declined("arithmetic of " + Catalyst.type(one));
        }
        String divisor = NativeSql.of(Catalyst.last(one));
        return "(CASE WHEN " + divisor + " = 0 THEN " + zero + " ELSE " + NativeSql.of(Catalyst.first(one)) + " / " + divisor + " END)";
    }

    private static String ofDecimals(BinaryArithmetic one, String zero) throws NativeSql.Declined {
        Expression first = Catalyst.first(one);
        Expression last = Catalyst.last(one);
        return NativeDecimals.quotient(NativeSql.of(first), (DecimalType) first.dataType(), NativeSql.of(last),
                (DecimalType) last.dataType(), (DecimalType) one.dataType(), zero);
    }
}
