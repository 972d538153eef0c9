package penstock;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Or;

/** Conditions in the SQL of DuckDB that may fail; see `NativeSql.condition` for those that must not. */
final class NativeConditions {
    private NativeConditions() {
    }

    /** Returns the condition of a case, which DuckDB asks of the same rows as Spark. */
    static String of(Expression one) throws NativeSql.Declined {
        check(one);
        return NativeSql.of(one);
    }

    /**
     * Checks that no error of a condition is lost.
     *
     * DuckDB may ask the parts of a condition in another order, and not all of them: of x OR TRUE, nothing. So each part
     * must fail for the same rows, if one may: of a - b > 30 AND a - b < 60, either is as good. A comparison that may fail
     * is always asked, as DuckDB knows nothing of how large a value is that may not fit.
     */
    static void check(Expression one) throws NativeSql.Declined {
        if (!ExpressionSafety.cannotFail(NativeResults.withValues(one)) && failing(one) == null) {
            throw new NativeSql.Declined("a condition that may fail");
        }
    }

    /** Returns a condition without those parts that ask for a value which another part compares: that drops nulls too. */
    static Expression withoutNulls(Expression condition) {
        List<Expression> parts = new ArrayList<>();
        split(condition, parts);
        Expression found = null;
        for (Expression part : parts) {
            boolean isNeeded = true;
            for (Expression other : parts) {
                isNeeded = isNeeded && !(part instanceof IsNotNull && other instanceof BinaryComparison && isNullWith(other, Catalyst.first(part)));
            }
            if (isNeeded) {
                found = found == null ? part : new And(found, part);
            }
        }
        return found;
    }

    private static void split(Expression condition, List<Expression> parts) {
        if (condition instanceof And) {
            split(Catalyst.first(condition), parts);
            split(Catalyst.last(condition), parts);
        } else {
            parts.add(condition);
        }
    }

    /** Whether a value is null wherever a column is. */
    private static boolean isNullWith(Expression value, Expression column) {
        if (value.semanticEquals(column)) {
            return column instanceof AttributeReference;
        }
        boolean compares = value instanceof BinaryComparison && !(value instanceof EqualNullSafe);
        boolean passesNulls = compares || value instanceof BinaryArithmetic || value instanceof Cast;
        for (Object part : passesNulls ? Catalyst.each(value.children()) : new ArrayList<Object>()) {
            if (isNullWith((Expression) part, column)) {
                return true;
            }
        }
        return false;
    }

    /** Returns what may fail in each part of a condition, null if it is not the same, or may be left out. */
    private static Set<Object> failing(Expression one) {
        if (one instanceof And || one instanceof Or) {
            Set<Object> left = failing(Catalyst.first(one));
            Set<Object> right = failing(Catalyst.last(one));
            return left != null && left.equals(right) ? left : null;
        }
        if (!(one instanceof BinaryComparison)) {
            return null;
        }
        Set<Object> found = new HashSet<>();
        return add(Catalyst.first(one), found) && add(Catalyst.last(one), found) && !found.isEmpty() ? found : null;
    }

    /** Adds what may fail in a value; returns whether all of it is computed for each row. */
    private static boolean add(Expression one, Set<Object> found) {
        if (ExpressionSafety.cannotFail(NativeResults.withValues(one))) {
            return true;
        }
        if (!(one instanceof BinaryArithmetic) && !(one instanceof Cast)) {
            return false;
        }
        found.add(one.canonicalized());
        boolean isComputed = true;
        for (Object part : Catalyst.each(one.children())) {
            isComputed = isComputed && add((Expression) part, found);
        }
        return isComputed;
    }
}
