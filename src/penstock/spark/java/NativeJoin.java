package penstock;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;

/** A join with a side that has been broadcast, in the SQL of DuckDB; a table ``build_N`` has the rows of that side. */
final class NativeJoin {
    /** A larger one is not copied to where DuckDB is: each task would make a hash table of it. */
    private static final long MOST_BYTES = 128L << 20;

    final SparkPlan build;
    final SparkPlan streamed;
    private final BroadcastHashJoinExec join;
    private final boolean buildsLeft;

    NativeJoin(BroadcastHashJoinExec join) throws NativeSql.Declined {
        this.join = join;
        buildsLeft = join.buildSide().toString().equals("BuildLeft");
        build = buildsLeft ? join.left() : join.right();
        streamed = buildsLeft ? join.right() : join.left();
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

    private static Object relation(SparkPlan build) {
        return build.executeBroadcast().value();
    }

    /** Returns the number of the broadcast that a side is. */
    long broadcast() {
        return build.executeBroadcast().id();
    }

    /** Returns the join of the rows of a query with the build side that has a number. */
    String of(String rows, int number) throws NativeSql.Declined {
        String kind = join.joinType().toString();
        String tables = " FROM (" + rows + ") AS s ";
        String table = "build_" + number + " AS b";
        checkNames();
        if (kind.equals("Inner")) {
            return "SELECT " + columns(join) + tables + "JOIN " + table + " ON " + condition();
        }
        if (kind.equals(buildsLeft ? "RightOuter" : "LeftOuter")) {
            return "SELECT " + columns(join) + tables + "LEFT JOIN " + table + " ON " + condition();
        }
        if (!buildsLeft && (kind.equals("LeftSemi") || kind.equals("LeftAnti"))) {
            String exists = kind.equals("LeftSemi") ? "EXISTS" : "NOT EXISTS";
            return "SELECT " + columns(join) + tables + "WHERE " + exists + " (SELECT 1 FROM " + table + " WHERE " + condition() + ")";
        }
        throw new NativeSql.Declined("a join of the kind " + kind);
    }

    private void checkNames() throws NativeSql.Declined {
        List<Object> ids = new ArrayList<>();
        for (Object column : Catalyst.each(streamed.output())) {
            ids.add(NativeSql.column((AttributeReference) column));
        }
        for (Object column : Catalyst.each(build.output())) {
            if (ids.contains(NativeSql.column((AttributeReference) column))) {
                throw new NativeSql.Declined("a join of equal columns");
            }
        }
        if (build.output().isEmpty()) {
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
        List<?> left = Catalyst.each(join.leftKeys());
        List<?> right = Catalyst.each(join.rightKeys());
        for (int i = 0; i < left.size(); i++) {
            found.append(i == 0 ? "" : " AND ").append(NativeSql.equal((Expression) left.get(i), (Expression) right.get(i)));
        }
        if (join.condition().isDefined()) {
            found.append(" AND ").append(NativeSql.condition((Expression) (Object) join.condition().get()));
        }
        return found.toString();
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
