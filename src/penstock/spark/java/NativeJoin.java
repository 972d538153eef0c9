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

/** A join in the SQL of DuckDB. */
final class NativeJoin {
    /** A larger one is not copied to where DuckDB is: each task would make a hash table of it. */
    private static final long MOST_BYTES = 128L << 20;

    final SparkPlan left;
    final SparkPlan right;
    /** The side that was broadcast, null if none was. */
    final SparkPlan build;
    final boolean buildsLeft;
    private final BaseJoinExec join;

    /** A join whose sides lie together. */
    NativeJoin(SparkPlan join) {
        this(join, null, false);
    }

    /** A join with a side that was broadcast. */
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
        if (!RelationRows.areKnown(relation) || ((HashedRelation) relation).estimatedSize() > MOST_BYTES) {
            throw new NativeSql.Declined("a large broadcast");
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

    /** Returns the number of the broadcast that a side is. */
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
        boolean isFree = build == null;
        if (kind.equals("Inner")) {
            return "JOIN";
        }
        if (kind.equals("LeftOuter") && (isFree || !buildsLeft)) {
            return "LEFT JOIN";
        }
        if (kind.equals("RightOuter") && (isFree || buildsLeft)) {
            return "RIGHT JOIN";
        }
        if (kind.equals("FullOuter") && isFree) {
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
                throw new NativeSql.Declined("a join of equal columns");
            }
        }
        if (left.output().isEmpty() || right.output().isEmpty()) {
            throw new NativeSql.Declined("no columns");
        }
    }

    private static String columns(SparkPlan plan) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        for (Object column : Catalyst.each(plan.output())) {
            found.append(found.length() == 0 ? "" : ", ").append(NativeSql.column((AttributeReference) column));
        }
        return found.length() == 0 ? "1 AS nothing" : found.toString();
    }

    private String condition() throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        List<?> ours = Catalyst.each(join.leftKeys());
        List<?> theirs = Catalyst.each(join.rightKeys());
        for (int i = 0; i < ours.size(); i++) {
            found.append(i == 0 ? "" : " AND ").append(NativeSql.equal((Expression) ours.get(i), (Expression) theirs.get(i)));
        }
        if (join.condition().isDefined()) {
            Expression condition = (Expression) (Object) join.condition().get();
            if (!join.joinType().toString().equals("Inner")) {
                checkCompares(condition);
            }
            found.append(" AND ").append(NativeSql.condition(condition));
        }
        return found.toString();
    }

    /** Checks that a condition compares the sides: with another one, DuckDB would compare all rows of an outer join. */
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

    /** Whether a condition compares a value of one side with one of the other, or says that they differ. */
    static boolean compares(Expression condition, AttributeSet left, AttributeSet right) {
        Expression one = condition instanceof Not && Catalyst.first(condition) instanceof EqualTo ? Catalyst.first(condition) : condition;
        if (!(one instanceof BinaryComparison)) {
            return false;
        }
        Expression first = Catalyst.first(one);
        Expression last = Catalyst.last(one);
        return isOf(first, left) && isOf(last, right) || isOf(first, right) && isOf(last, left);
    }

    private static boolean isOf(Expression one, AttributeSet side) {
        return one.references().nonEmpty() && one.references().subsetOf(side);
    }

    /** Writes the rows of a build side to a file. */
    static void write(SparkPlan build, String path) throws Exception {
        List<StructField> fields = new ArrayList<>();
        for (Object each : Catalyst.each(build.output())) {
            AttributeReference column = (AttributeReference) each;
            fields.add(DataTypes.createStructField(NativeSql.column(column), column.dataType(), true));
        }
        RelationRows rows = new RelationRows((HashedRelation) relation(build));
        ArrowFile.write(rows, DataTypes.createStructType(fields), path);
    }
}
