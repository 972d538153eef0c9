package penstock.duckdb;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.aggregate.SortAggregateExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;

import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.PythonFunctions;
import penstock.exchange.ColumnsToRows;
import penstock.exchange.KeyRows;
import penstock.plans.Catalyst;
import penstock.plans.ExpressionSafety;

/** A part of a physical plan as a DuckDB query over the files of a scan, or over exchanged columns; see `NativeParts`. */
final class NativePart {
    /** The reason why an exchange is not supported. */
    static final String EXCHANGE_REASON = "an exchange";
    final SparkPlan plan;
    final String sql;
    /** The scan, null if the part reads exchanged columns. */
    FileSourceScanExec scan;
    /** The operators that read exchanged columns (`ColumnsToRows`), named ``input_0`` and so on in the query. */
    final List<Object> inputs = new ArrayList<>();
    /** The broadcast sides of its joins, named ``build_0`` and so on in the query. */
    final List<Object> builds = new ArrayList<>();
    /** The numbers of the key sets that filter its rows; see `KeyRows`. */
    final List<Object> keySetNumbers = new ArrayList<>();
    /** The calls of Python functions, in their order: the first reads the files or inputs, others the one before. */
    final List<Object> functions = new ArrayList<>();
    /** The operators of these calls. */
    final List<Object> functionOperators = new ArrayList<>();
    /** Whether the part contains an aggregate. */
    boolean aggregates;
    /** The ids of the broadcasts that are joined above the visited operator. */
    private final List<Object> joinedBroadcasts = new ArrayList<>();
    private final String scanName;
    private boolean needsPartitioning; // by key, for a join or an aggregate
    private long keySetRows; // the number of rows in all key sets of `keySetNumbers`
    /** The number of operators above the visited plan that may drop its rows: DuckDB may miss errors in them. */
    private int droppingOperators;

    NativePart(SparkPlan plan) throws Declined {
        this(plan, "scan");
    }

    /** A part whose query reads the rows of its files as `scanName`. */
    NativePart(SparkPlan plan, String scanName) throws Declined {
        this.plan = plan;
        this.scanName = scanName;
        sql = of(plan);
        if (scan != null && !inputs.isEmpty()) {
            throw new Declined("files together with exchanged rows");
        }
        if (needsPartitioning) {
            NativeScatter.checkLayout(plan);
        }
    }

    /** Whether the part does more than read exchanged columns. */
    boolean computesAnything() {
        SparkPlan materialized = materializedPlan(plan);
        return inputs.isEmpty() || !(unwrap(materialized == null ? plan : materialized) instanceof ColumnsToRows);
    }

    /** Returns an upper bound of the bytes of exchanged columns, as written, that a task reads. */
    long maxTaskBytes() {
        long bytes = 0;
        for (Object input : inputs) {
            bytes += ((ColumnsToRows) input).largestPartitionBytes();
        }
        return bytes;
    }

    /** Returns the total number of rows of the build sides and key sets. */
    long joinedRows() {
        long total = keySetRows;
        for (Object build : builds) {
            Option<?> rows = ((BroadcastQueryStageExec) build).getRuntimeStatistics().rowCount();
            total += rows.isEmpty() ? 0 : ((BigInt) (Object) rows.get()).longValue();
        }
        return total;
    }

    private String of(SparkPlan plan) throws Declined {
        SparkPlan materialized = materializedPlan(plan);
        if (materialized != null) {
            return withColumnsOf(plan, of(materialized), materialized);
        }
        SparkPlan operator = unwrap(plan);
        if (operator instanceof FileSourceScanExec) {
            if (scan != null) {
                throw new Declined("two tables");
            }
            scan = (FileSourceScanExec) operator;
            return NativeScan.sql(scan, scanName);
        }
        if (operator instanceof ColumnsToRows) {
            inputs.add(operator);
            NativeParts.columns(operator.output());
            return "SELECT * FROM input_" + (inputs.size() - 1);
        }
        if (operator instanceof ProjectExec) {
            checkSafe(((ProjectExec) operator).projectList());
            return "SELECT " + NativeSql.selectList(((ProjectExec) operator).projectList()) + " FROM (" + of(((ProjectExec) operator).child()) + ")";
        }
        if (operator instanceof FilterExec) {
            return filter(((FilterExec) operator).condition(), ofDroppable(((FilterExec) operator).child()));
        }
        if (operator instanceof BroadcastHashJoinExec) {
            return broadcastJoin(new NativeJoin(operator));
        }
        if (operator instanceof SortMergeJoinExec || operator instanceof ShuffledHashJoinExec) {
            needsPartitioning = true;
            NativeJoin join = new NativeJoin(operator);
            List<Object> joinedAbove = new ArrayList<>(joinedBroadcasts);
            String left = ofDroppable(withoutSort(join.left));
            joinedBroadcasts.retainAll(joinedAbove); // broadcasts joined in one side do not filter the other
            return join.of(left, ofDroppable(withoutSort(join.right)));
        }
        if (operator instanceof HashAggregateExec || operator instanceof SortAggregateExec) {
            BaseAggregateExec aggregate = (BaseAggregateExec) operator;
            String rows = of(withoutSort(Catalyst.onlyChild(operator)));
            aggregates = true;
            if (aggregate.requiredChildDistributionExpressions().isEmpty()) {
                return new NativePartialAggregate(aggregate).of(rows);
            }
            needsPartitioning = true;
            return NativeFinalAggregate.of(aggregate, rows);
        }
        if (operator instanceof GenerateExec) {
            checkSafe(Catalyst.seq((Expression) ((GenerateExec) operator).generator()));
            return NativeJson.exploded((GenerateExec) operator, ofDroppable(Catalyst.onlyChild(operator)));
        }
        if (PythonFunctions.areIn(operator)) {
            return called(new PythonFunctions(operator), Catalyst.onlyChild(operator));
        }
        throw operator instanceof Exchange ? new Declined(EXCHANGE_REASON) : Declined.operator(operator);
    }

    /** Checks that no value of a droppable row fails: Spark computes the value, DuckDB possibly not. */
    private void checkSafe(Seq<?> values) throws Declined {
        if (droppingOperators > 0 && !ExpressionSafety.cannotFail(values)) {
            throw new Declined("a value that may fail, of a row that may be dropped");
        }
    }

    /** Adds a call of functions, and returns the query of its rows. The functions must be called for no other rows. */
    private String called(PythonFunctions operator, SparkPlan child) throws Declined {
        int outerOperators = droppingOperators;
        List<Object> joinedAbove = new ArrayList<>(joinedBroadcasts);
        droppingOperators = 0;
        joinedBroadcasts.clear();
        List<Object> arguments = new ArrayList<>();
        for (Object argument : operator.arguments) {
            NativeTypes.nameOf(((Expression) argument).dataType());
            arguments.add(NativeSql.of((Expression) argument));
        }
        List<Object> columns = operator.mapsRows || child.output().isEmpty() ? new ArrayList<>() : NativeParts.columns(child.output());
        String name = "called_" + functions.size();
        String rows = of(child);
        functions.add(operator.call(name, columns, arguments, rows, NativeParts.columns(operator.results)));
        functionOperators.add(operator);
        droppingOperators = outerOperators;
        joinedBroadcasts.addAll(joinedAbove);
        return "SELECT * FROM " + name;
    }

    /** Returns the query of a plan whose rows the operator above may drop. */
    private String ofDroppable(SparkPlan plan) throws Declined {
        droppingOperators++;
        String rows = of(plan);
        droppingOperators--;
        return rows;
    }

    /** Returns the operator inside nodes that only wrap it for execution. */
    private static SparkPlan unwrap(SparkPlan plan) {
        boolean isWrapped = plan instanceof WholeStageCodegenExec || plan instanceof InputAdapter;
        return isWrapped ? unwrap(Catalyst.onlyChild(plan)) : plan;
    }

    /** If a plan scans materialized rows, returns the plan that computed them, otherwise null. */
    private static SparkPlan materializedPlan(SparkPlan plan) {
        SparkPlan operator = unwrap(plan);
        return operator instanceof RDDScanExec ? ColumnsToRows.planOf(operator) : null;
    }

    /** Renames the columns of `from` to those of `to`: a result that is read twice has different column ids. */
    private static String withColumnsOf(SparkPlan to, String sql, SparkPlan from) throws Declined {
        if (to.output().size() != from.output().size()) {
            throw new Declined("a result that is read with another number of columns");
        }
        return "SELECT * FROM (" + sql + ") AS t(" + NativeSql.columns(to.output()) + ")";
    }

    /** Returns the input of a sort that only the operator above needs, other plans unchanged. */
    private static SparkPlan withoutSort(SparkPlan plan) {
        SparkPlan operator = unwrap(plan);
        return operator instanceof SortExec ? ((SortExec) operator).child() : operator;
    }

    private String broadcastJoin(NativeJoin join) throws Declined {
        NativeParts.columns(join.build.output());
        joinedBroadcasts.add(join.broadcastId());
        String build = "SELECT * FROM build_" + builds.size();
        builds.add(join.build);
        return join.buildsLeft ? join.of(build, ofDroppable(join.right)) : join.of(ofDroppable(join.left), build);
    }

    /** Returns the rows that match a condition. A filter by a key set is skipped if the broadcast keys are joined above. */
    private String filter(Expression condition, String rows) throws Declined {
        if (condition instanceof And) {
            return filter(((And) condition).right(), filter(((And) condition).left(), rows));
        }
        List<?> keySet = KeyRows.tagOf(condition); // number, broadcast id, rows
        if (keySet == null) {
            return "SELECT * FROM (" + rows + ") WHERE " + NativeSql.condition(condition);
        }
        if (joinedBroadcasts.contains(keySet.get(1))) {
            return rows;
        }
        keySetNumbers.add(keySet.get(0));
        keySetRows += (Long) keySet.get(2);
        return "SELECT s.* FROM (" + rows + ") AS s SEMI JOIN keys_" + keySet.get(0) + " AS k ON " + NativeJoin.keyCondition(condition);
    }
}
