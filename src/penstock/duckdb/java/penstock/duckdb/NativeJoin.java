package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;

import penstock.exchange.ArrowFile;
import penstock.exchange.RelationRows;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** A physical join in DuckDB's SQL. */
final class NativeJoin {
    /** Maximum size of a broadcast relation: each task copies it and builds a hash table. */
    private static final long MAX_BYTES = 128L << 20;

    final SparkPlan left;
    final SparkPlan right;
    /** The broadcast side, null for a shuffled join. */
    final SparkPlan build;
    final boolean buildsLeft;
    private final BaseJoinExec join;

    NativeJoin(SparkPlan plan) throws NativeSql.Declined {
        join = (BaseJoinExec) plan;
        left = (SparkPlan) (Object) plan.children().head();
        right = (SparkPlan) (Object) plan.children().last();
        BroadcastHashJoinExec broadcast = plan instanceof BroadcastHashJoinExec ? (BroadcastHashJoinExec) plan : null;
        buildsLeft = broadcast != null && broadcast.buildSide().toString().equals("BuildLeft");
        build = broadcast == null ? null : buildsLeft ? left : right;
        if (broadcast == null) {
            return;
        }
        if (broadcast.isNullAwareAntiJoin()) {
            throw new NativeSql.Declined("NOT IN");
        }
        if (!(build instanceof BroadcastQueryStageExec)) {
            throw new NativeSql.Declined("a broadcast that has not run");
        }
        Object relation = relation(build);
        if (!RelationRows.isSupported(relation) || ((HashedRelation) relation).estimatedSize() > MAX_BYTES) {
            throw new NativeSql.Declined("a large broadcast relation");
        }
    }

    private static Object relation(SparkPlan build) {
        return build.executeBroadcast().value();
    }

    long broadcast() {
        return build.executeBroadcast().id();
    }

    String of(String leftRows, String rightRows) throws NativeSql.Declined {
        NativeSql.checkSides(left.output(), right.output());
        String columns = NativeSql.columns(((SparkPlan) join).output());
        return "SELECT " + (columns.isEmpty() ? "1 AS nothing" : columns) + " FROM (" + leftRows + ") AS l " + kind()
                + " (" + rightRows + ") AS r ON " + condition();
    }

    private String kind() throws NativeSql.Declined {
        String kind = join.joinType().toString();
        boolean isShuffled = build == null;
        if (kind.equals("Inner")) {
            return "JOIN";
        }
        if (kind.equals("LeftOuter") && (isShuffled || !buildsLeft)) {
            return "LEFT JOIN";
        }
        if (kind.equals("RightOuter") && (isShuffled || buildsLeft)) {
            return "RIGHT JOIN";
        }
        if (kind.equals("FullOuter") && isShuffled) {
            return "FULL JOIN";
        }
        if (!buildsLeft && (kind.equals("LeftSemi") || kind.equals("LeftAnti"))) {
            return kind.equals("LeftSemi") ? "SEMI JOIN" : "ANTI JOIN";
        }
        throw new NativeSql.Declined("a join of the kind " + kind);
    }

    private String condition() throws NativeSql.Declined {
        StringBuilder sql = new StringBuilder();
        List<?> leftKeys = Catalyst.each(join.leftKeys());
        List<?> rightKeys = Catalyst.each(join.rightKeys());
        for (int i = 0; i < leftKeys.size(); i++) {
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.equal((Expression) leftKeys.get(i), (Expression) rightKeys.get(i)));
        }
        boolean isInner = join.joinType().toString().equals("Inner");
        for (Expression conjunct : Catalyst.conjuncts(join.condition())) { // otherwise DuckDB would compare all pairs of an outer join
            if (!isInner && (conjunct instanceof Not || !compares(conjunct, left.outputSet(), right.outputSet()))) {
                throw new NativeSql.Declined("a condition of an outer join that does not compare its sides");
            }
        }
        if (join.condition().isDefined()) {
            sql.append(" AND ").append(NativeSql.condition((Expression) (Object) join.condition().get()));
        }
        return sql.toString();
    }

    /** Returns the join condition of columns with the keys of a tagged filter, in a table ``k``. */
    static String keyCondition(Expression filter) throws NativeSql.Declined {
        List<?> hashed = Catalyst.each(Catalyst.last(filter).children());
        StringBuilder sql = new StringBuilder();
        for (int i = 0; i < hashed.size(); i++) {
            Expression key = (Expression) hashed.get(i);
            if (NumericTypes.isFloating(key.dataType())) {
                throw new NativeSql.Declined("a comparison of floating-point numbers");
            }
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.condition(key)).append(" = k.k").append(i);
        }
        return sql.toString();
    }

    /** Whether a condition compares a value of the left side with a value of the right side, including `<>`. */
    static boolean compares(Expression condition, AttributeSet left, AttributeSet right) {
        Expression comparison = condition instanceof Not && Catalyst.first(condition) instanceof EqualTo ? Catalyst.first(condition) : condition;
        if (!(comparison instanceof BinaryComparison)) {
            return false;
        }
        Expression first = Catalyst.first(comparison);
        Expression last = Catalyst.last(comparison);
        return refersOnlyTo(first, left) && refersOnlyTo(last, right) || refersOnlyTo(first, right) && refersOnlyTo(last, left);
    }

    private static boolean refersOnlyTo(Expression expression, AttributeSet side) {
        return expression.references().nonEmpty() && expression.references().subsetOf(side);
    }

    static void write(SparkPlan build, String path) throws Exception {
        List<StructField> fields = new ArrayList<>();
        for (Attribute column : Catalyst.each(build.output())) {
            fields.add(DataTypes.createStructField(NativeSql.column(column), column.dataType(), true));
        }
        RelationRows rows = new RelationRows((HashedRelation) relation(build));
        ArrowFile.write(rows, DataTypes.createStructType(fields), path);
    }
}
