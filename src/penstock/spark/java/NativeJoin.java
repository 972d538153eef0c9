package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
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

    /** A join whose sides are partitioned alike. */
    NativeJoin(SparkPlan join) {
        this(join, null, false);
    }

    /** A join with a broadcast side. */
    NativeJoin(BroadcastHashJoinExec join) throws NativeSql.Declined {
        this(join, join.buildSide().toString().equals("BuildLeft") ? join.left() : join.right(),
                join.buildSide().toString().equals("BuildLeft"));
        if (join.isNullAwareAntiJoin()) {
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

    private NativeJoin(SparkPlan join, SparkPlan build, boolean buildsLeft) {
        this.join = (BaseJoinExec) join;
        this.build = build;
        this.buildsLeft = buildsLeft;
        left = (SparkPlan) Catalyst.each(join.children()).get(0);
        right = (SparkPlan) Catalyst.each(join.children()).get(1);
    }

    private static Object relation(SparkPlan build) {
        return build.executeBroadcast().value();
    }

    /** Returns the id of the broadcast side. */
    long broadcast() {
        return build.executeBroadcast().id();
    }

    /** Returns the join of the rows of two queries. */
    String of(String leftRows, String rightRows) throws NativeSql.Declined {
        checkNames();
        return "SELECT " + columns((SparkPlan) join) + " FROM (" + leftRows + ") AS l " + kind() + " (" + rightRows + ") AS r ON "
                + condition();
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

    private void checkNames() throws NativeSql.Declined {
        List<Object> ids = new ArrayList<>();
        for (Object column : Catalyst.each(left.output())) {
            ids.add(NativeSql.column((AttributeReference) column));
        }
        for (Object column : Catalyst.each(right.output())) {
            if (ids.contains(NativeSql.column((AttributeReference) column))) {
                throw new NativeSql.Declined("a join whose sides have a column in common");
            }
        }
        if (left.output().isEmpty() || right.output().isEmpty()) {
            throw new NativeSql.Declined("a plan without columns");
        }
    }

    private static String columns(SparkPlan plan) throws NativeSql.Declined {
        StringBuilder columns = new StringBuilder();
        for (Object column : Catalyst.each(plan.output())) {
            columns.append(columns.length() == 0 ? "" : ", ").append(NativeSql.column((AttributeReference) column));
        }
        return columns.length() == 0 ? "1 AS nothing" : columns.toString();
    }

    private String condition() throws NativeSql.Declined {
        StringBuilder sql = new StringBuilder();
        List<?> leftKeys = Catalyst.each(join.leftKeys());
        List<?> rightKeys = Catalyst.each(join.rightKeys());
        for (int i = 0; i < leftKeys.size(); i++) {
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.equal((Expression) leftKeys.get(i), (Expression) rightKeys.get(i)));
        }
        if (join.condition().isDefined()) {
            Expression condition = (Expression) (Object) join.condition().get();
            if (!join.joinType().toString().equals("Inner")) {
                checkCompares(condition);
            }
            sql.append(" AND ").append(NativeSql.condition(condition));
        }
        return sql.toString();
    }

    /** Checks that a condition compares the sides: otherwise DuckDB would compare all pairs of an outer join. */
    private void checkCompares(Expression condition) throws NativeSql.Declined {
        if (condition instanceof And) {
            checkCompares(((And) condition).left());
            checkCompares(((And) condition).right());
            return;
        }
        if (condition instanceof Not || !compares(condition, left.outputSet(), right.outputSet())) {
            throw new NativeSql.Declined("a condition of an outer join that does not compare its sides");
        }
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

    /** Writes the rows of a build side to a file. */
    static void write(SparkPlan build, String path) throws Exception {
        List<StructField> fields = new ArrayList<>();
        for (Object element : Catalyst.each(build.output())) {
            AttributeReference column = (AttributeReference) element;
            fields.add(DataTypes.createStructField(NativeSql.column(column), column.dataType(), true));
        }
        RelationRows rows = new RelationRows((HashedRelation) relation(build));
        ArrowFile.write(rows, DataTypes.createStructType(fields), path);
    }
}
