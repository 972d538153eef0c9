package penstock;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;

/** A join of an optimised plan in the SQL of DuckDB; see `NativeQuery`. */
final class NativePairs {
    private NativePairs() {
    }

    /** Whether a join keeps the pairs of rows that meet its condition, and nothing else. */
    static boolean isInner(Join join) {
        return join.joinType().toString().equals("Inner") || join.joinType().toString().equals("Cross");
    }

    /**
     * Returns what an inner join asks of its pairs, in parts.
     *
     * @param isSmall whether one of its sides has one row at most
     */
    static List<Object> ofInner(Join join, boolean isSmall) throws NativeSql.Declined {
        List<Object> found = new ArrayList<>();
        boolean hasKeys = isSmall;
        for (Object each : conditions(join)) {
            boolean compares = compares(join, (Expression) each);
            hasKeys |= compares && isEqual(each);
            String sql = condition((Expression) each, compares);
            // DuckDB would join two tables by it first, and so each row of the one with most of the other.
            found.add(isEqual(each) || !compares || isOfKeys(join, (Expression) each) ? sql : "(CASE WHEN " + sql + " THEN TRUE ELSE FALSE END)");
        }
        if (!hasKeys) {
            throw new NativeSql.Declined("a join without equal keys");
        }
        return found;
    }

    /** Whether a condition compares rows of two tables which an equal key joins too. */
    private static boolean isOfKeys(Join join, Expression condition) {
        for (Object each : conditions(join)) {
            if (isEqual(each) && tables(join, (Expression) each).equals(tables(join, condition))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the sides of inner joins whose columns a condition compares. */
    private static Set<Object> tables(LogicalPlan plan, Expression condition) {
        boolean isAbove = plan instanceof Join && isInner((Join) plan) || !NativeQuery.isScan(plan)
                && (plan instanceof Filter || plan instanceof Project && NativeSemiJoins.isChoice((Project) plan));
        Set<Object> found = new HashSet<>();
        for (Object child : isAbove ? Catalyst.each(plan.children()) : new ArrayList<Object>()) {
            found.addAll(tables((LogicalPlan) child, condition));
        }
        if (!isAbove && !condition.references().intersect(plan.outputSet()).isEmpty()) {
            found.add(plan);
        }
        return found;
    }

    /** Returns another join of the rows of two queries. */
    static String of(Join join, String left, String right) throws NativeSql.Declined {
        checkNames(join);
        List<?> conditions = conditions(join);
        if (join.joinType().toString().equals("LeftAnti") && conditions.size() == 1 && isNotIn((Expression) conditions.get(0))) {
            return notIn(join, Catalyst.first((Expression) conditions.get(0)), left, right);
        }
        boolean hasKeys = false;
        StringBuilder found = new StringBuilder();
        for (Object each : conditions) {
            if (!compares(join, (Expression) each)) {
                throw new NativeSql.Declined("a condition of an outer join that does not compare its sides");
            }
            hasKeys |= isEqual(each);
            found.append(found.length() == 0 ? "" : " AND ").append(condition((Expression) each, true));
        }
        if (!hasKeys) {
            throw new NativeSql.Declined("a join without equal keys");
        }
        if (join.joinType() instanceof ExistenceJoin) {
            String name = NativeSql.column((AttributeReference) ((ExistenceJoin) join.joinType()).exists());
            return "SELECT l.*, EXISTS (SELECT 1 FROM (" + right + ") AS r WHERE " + found + ") AS " + name + " FROM (" + left + ") AS l";
        }
        return "SELECT * FROM (" + left + ") AS l " + kind(join) + " (" + right + ") AS r ON " + found;
    }

    /** Returns the parts of a join's condition. */
    static List<Object> conditions(Join join) {
        List<Object> found = new ArrayList<>();
        if (join.condition().isDefined()) {
            split((Expression) (Object) join.condition().get(), found);
        }
        return found;
    }

    private static boolean compares(Join join, Expression one) {
        return NativeJoin.compares(one, join.left().outputSet(), join.right().outputSet());
    }

    private static boolean isEqual(Object condition) {
        return condition instanceof EqualTo || condition instanceof EqualNullSafe;
    }

    private static String notIn(Join join, Expression equal, String left, String right) throws NativeSql.Declined {
        Expression first = Catalyst.first(equal);
        NativeSql.checkKeys(first, Catalyst.last(equal));
        boolean isOurs = first.references().subsetOf(join.left().outputSet());
        String wanted = NativeSql.of(isOurs ? first : Catalyst.last(equal));
        String listed = NativeSql.of(isOurs ? Catalyst.last(equal) : first);
        return "SELECT * FROM (" + left + ") WHERE " + wanted + " NOT IN (SELECT " + listed + " FROM (" + right + "))";
    }

    /** Whether a condition of an anti join is that of NOT IN: two values are equal, or one is null. */
    private static boolean isNotIn(Expression one) {
        Expression last = one instanceof Or ? Catalyst.last(one) : one;
        return one instanceof Or && Catalyst.first(one) instanceof EqualTo && last instanceof IsNull
                && Catalyst.first(last).semanticEquals(Catalyst.first(one));
    }

    private static String condition(Expression one, boolean compares) throws NativeSql.Declined {
        List<?> parts = Catalyst.each(one.children());
        if (one instanceof EqualTo && compares) {
            return NativeSql.equal((Expression) parts.get(0), (Expression) parts.get(1));
        }
        if (one instanceof Not && compares) { // as a comparison, DuckDB asks it of the rows of a key alone
            List<?> sides = Catalyst.each(((Not) one).child().children());
            NativeSql.checkKeys((Expression) sides.get(0), (Expression) sides.get(1));
            return "(" + NativeSql.of((Expression) sides.get(0)) + " <> " + NativeSql.of((Expression) sides.get(1)) + ")";
        }
        return NativeSql.condition(one);
    }

    private static void split(Expression condition, List<Object> found) {
        if (condition instanceof And) {
            split(((And) condition).left(), found);
            split(((And) condition).right(), found);
        } else {
            found.add(condition);
        }
    }

    private static String kind(Join join) throws NativeSql.Declined {
        String kind = join.joinType().toString();
        if (kind.equals("LeftOuter") || kind.equals("RightOuter") || kind.equals("FullOuter")) {
            return kind.substring(0, kind.indexOf("Outer")).toUpperCase(java.util.Locale.ROOT) + " JOIN";
        }
        if (kind.equals("LeftSemi") || kind.equals("LeftAnti")) {
            return kind.equals("LeftSemi") ? "SEMI JOIN" : "ANTI JOIN";
        }
        throw new NativeSql.Declined("a join of the kind " + kind);
    }

    /** Checks that no column stands on both sides. */
    static void checkNames(Join join) throws NativeSql.Declined {
        List<Object> ids = names(join.left());
        for (Object name : names(join.right())) {
            if (ids.contains(name)) {
                throw new NativeSql.Declined("a join of equal columns");
            }
        }
    }

    private static List<Object> names(LogicalPlan side) throws NativeSql.Declined {
        List<Object> found = new ArrayList<>();
        for (Object column : Catalyst.each(side.output())) {
            found.add(NativeSql.column((AttributeReference) column));
        }
        if (found.isEmpty()) {
            throw new NativeSql.Declined("no columns");
        }
        return found;
    }
}
