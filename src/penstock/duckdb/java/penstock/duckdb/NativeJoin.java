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

import penstock.duckdb.dialect.Declined;
import penstock.exchange.ArrowFile;
import penstock.exchange.RelationRows;
import penstock.plans.Catalyst;

/** A physical join in DuckDB's SQL. */
final class NativeJoin {
    /** Maximum size of a broadcast relation: each task copies the rows and builds a hash table. */
    private static final long MAX_RELATION_BYTES = 128L << 20;

    final SparkPlan left;
    final SparkPlan right;
    /** The broadcast side, null for a shuffled join. */
    final SparkPlan build;
    final boolean buildsLeft;
    private final BaseJoinExec join;

    NativeJoin(SparkPlan plan) throws Declined {
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
            throw new Declined("NOT IN");
        }
        if (!(build instanceof BroadcastQueryStageExec)) {
            throw new Declined("a broadcast that has not run");
        }
        Object relation = relation(build);
        if (!RelationRows.isSupported(relation) || ((HashedRelation) relation).estimatedSize() > MAX_RELATION_BYTES) {
            throw new Declined("a large broadcast relation");
        }
    }

    private static Object relation(SparkPlan build) {
        return build.executeBroadcast().value();
    }

    long broadcastId() {
        return build.executeBroadcast().id();
    }

    /** Returns the join of the rows of two queries. */
    String of(String leftRows, String rightRows) throws Declined {
        NativeSql.checkSides(left.output(), right.output());
        String columns = NativeSql.columns(((SparkPlan) join).output());
        return "SELECT " + (columns.isEmpty() ? "1 AS nothing" : columns) + " FROM (" + leftRows + ") AS l " + keywords()
                + " (" + rightRows + ") AS r ON " + condition();
    }

    private String keywords() throws Declined {
        String joinType = join.joinType().toString();
        if (joinType.equals("Inner")) {
            return "JOIN";
        }
        boolean preservesBuild = joinType.equals("FullOuter") || (buildsLeft ? joinType.startsWith("Left") : joinType.equals("RightOuter"));
        if (build != null && preservesBuild) { // several tasks would return the same build row
            throw new Declined("a join of the kind " + joinType);
        }
        return NativeLogicalJoin.keywords(joinType);
    }

    private String condition() throws Declined {
        StringBuilder sql = new StringBuilder();
        List<?> leftKeys = Catalyst.each(join.leftKeys());
        List<?> rightKeys = Catalyst.each(join.rightKeys());
        for (int i = 0; i < leftKeys.size(); i++) {
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.equal((Expression) leftKeys.get(i), (Expression) rightKeys.get(i)));
        }
        boolean isInner = join.joinType().toString().equals("Inner");
        for (Expression conjunct : Catalyst.conjuncts(join.condition())) {
            // DuckDB compares all pairs of rows by a `<>` or by a condition within a side, except in inner joins.
            if (!isInner && (conjunct instanceof Not || !comparesSides(conjunct, left.outputSet(), right.outputSet()))) {
                throw new Declined("a condition of an outer join that does not compare its sides");
            }
        }
        if (join.condition().isDefined()) {
            sql.append(" AND ").append(NativeSql.condition((Expression) (Object) join.condition().get()));
        }
        return sql.toString();
    }

    /** Returns the condition of a semi join with the keys of a key set filter; the keys are in the table ``k``. */
    static String keyCondition(Expression filter) throws Declined {
        List<?> hashed = Catalyst.each(Catalyst.last(filter).children());
        StringBuilder sql = new StringBuilder();
        for (int i = 0; i < hashed.size(); i++) {
            Expression key = (Expression) hashed.get(i);
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.condition(key)).append(" = k.k").append(i);
        }
        return sql.toString();
    }

    /** Whether a condition compares a value of the left side with a value of the right side, including `<>`. */
    static boolean comparesSides(Expression condition, AttributeSet left, AttributeSet right) {
        Expression comparison = condition instanceof Not && Catalyst.first(condition) instanceof EqualTo ? Catalyst.first(condition) : condition;
        if (!(comparison instanceof BinaryComparison)) {
            return false;
        }
        Expression leftOperand = Catalyst.first(comparison);
        Expression rightOperand = Catalyst.last(comparison);
        return refersOnlyTo(leftOperand, left) && refersOnlyTo(rightOperand, right)
                || refersOnlyTo(leftOperand, right) && refersOnlyTo(rightOperand, left);
    }

    private static boolean refersOnlyTo(Expression expression, AttributeSet side) {
        return expression.references().nonEmpty() && expression.references().subsetOf(side);
    }

    /** Writes the rows of a broadcast side to a file. */
    static void write(SparkPlan build, String path) throws Exception {
        List<StructField> fields = new ArrayList<>();
        for (Attribute column : Catalyst.each(build.output())) {
            fields.add(DataTypes.createStructField(NativeSql.column(column), column.dataType(), true));
        }
        RelationRows rows = new RelationRows((HashedRelation) relation(build));
        ArrowFile.write(rows, DataTypes.createStructType(fields), path);
    }
}
