package penstock.duckdb;

import java.util.List;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** A final aggregate after an exchange, in DuckDB's SQL: it merges the buffers of partial aggregates. */
final class NativeFinalAggregate {
    /** Returns a query for a final aggregate; `rows` is a query for the rows of partial aggregates. */
    static String of(BaseAggregateExec plan, String rows) throws Declined {
        String groups = NativeLogicalAggregate.keyColumns(plan.groupingExpressions(), "grouping by expressions other than columns", false);
        if (groups.isEmpty()) { // without groups, Spark returns a row even if no task has input rows
            throw new Declined("an aggregate without groups");
        }
        StringBuilder totals = new StringBuilder(groups);
        List<?> results = Catalyst.each(plan.aggregateAttributes());
        List<?> functions = Catalyst.each(plan.aggregateExpressions());
        for (int i = 0; i < functions.size(); i++) {
            AggregateExpression expression = (AggregateExpression) functions.get(i);
            if (!expression.mode().toString().equals("Final") || expression.isDistinct()) {
                throw new Declined("a distinct aggregate");
            }
            totals.append(", ").append(total(expression.aggregateFunction())).append(" AS ")
                    .append(NativeSql.column((AttributeReference) results.get(i)));
        }
        String inner = "SELECT " + totals + " FROM (" + rows + ") GROUP BY " + groups;
        return "SELECT " + NativeSql.selectList(plan.resultExpressions()) + " FROM (" + inner + ")";
    }

    private static String total(AggregateFunction function) throws Declined {
        NativeTemplates.checkIncluded(function);
        String name = Catalyst.name(function);
        List<?> buffers = Catalyst.each(function.inputAggBufferAttributes());
        String firstBuffer = NativeSql.column((AttributeReference) buffers.get(0));
        String type = NativeTypes.nameOf(function.dataType());
        if (name.equals("Count")) {
            return "CAST(sum(" + firstBuffer + ") AS BIGINT)";
        }
        if (function.children().size() != 1 || NumericTypes.overflowMode(function).equals("TRY")) {
            throw new Declined("aggregate " + name);
        }
        Expression child = Catalyst.first(function);
        if (NativeLogicalAggregate.SIMPLE_FUNCTIONS.containsKey(name)) {
            return NativeLogicalAggregate.SIMPLE_FUNCTIONS.get(name) + "(" + firstBuffer + ")";
        }
        if (name.equals("Sum") && NumericTypes.isFloating(child.dataType())) {
            return "sum(" + firstBuffer + ")";
        }
        if (name.equals("Sum") && child.dataType() instanceof DecimalType && NumericTypes.isSummedExactly(child.dataType())) {
            String isEmpty = NativeSql.column((AttributeReference) buffers.get(1));
            return "CASE WHEN bool_or(" + firstBuffer + " IS NULL) THEN error('a sum that did not fit') WHEN bool_and(" + isEmpty
                    + ") THEN NULL ELSE CAST(sum(" + firstBuffer + ") AS " + type + ") END";
        }
        if (name.equals("Sum") && NumericTypes.isInteger(child.dataType())) {
            return NativePartialAggregate.integerSum("", firstBuffer, "", false, NumericTypes.overflowMode(function));
        }
        if (name.equals("Average") && !(child.dataType() instanceof DecimalType)) {
            String count = "sum(" + NativeSql.column((AttributeReference) buffers.get(1)) + ")";
            String tooMany = "count(*) > " + NativePartialAggregate.MAX_TASKS + " THEN " + NativePartialAggregate.ROUNDED_ERROR + " WHEN ";
            return "CASE WHEN " + (Catalyst.name(child).equals("UnscaledValue") ? tooMany : "") + count + " = 0 THEN NULL ELSE sum(" + firstBuffer + ") / CAST(" + count + " AS DOUBLE) END";
        }
        throw new Declined("aggregate " + name + " of " + Catalyst.type(child) + " after an exchange");
    }
}
