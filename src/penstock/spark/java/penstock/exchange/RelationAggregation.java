package penstock.exchange;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.TypedImperativeAggregate;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.execution.joins.HashedRelation;

import scala.collection.Iterator;
import scala.collection.immutable.Seq;

import penstock.plans.Catalyst;

/** Aggregates the rows of a broadcast relation in the driver, without a query; see `filters.collect_relation_keys`. */
public final class RelationAggregation {
    /** Returns the results of bound aggregate functions over a broadcast relation; null if it is not a hashed relation. */
    public InternalRow aggregate(Object relation, Seq<?> functions) {
        if (!(relation instanceof HashedRelation)) {
            return null;
        }
        Column[] columns = new Column[functions.size()];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = new Column((Expression) functions.apply(i));
        }
        for (Iterator<?> rows = new RelationRows((HashedRelation) relation); rows.hasNext();) {
            InternalRow row = (InternalRow) rows.next();
            for (Column column : columns) {
                column.update(row);
            }
        }
        Object[] values = new Object[columns.length];
        for (int i = 0; i < columns.length; i++) {
            values[i] = columns[i].value();
        }
        return new GenericInternalRow(values);
    }

    /**
     * Returns the bytes of a broadcast relation's rows, extrapolated from the first rows; the relation's own size counts its
     * allocated memory pages. Returns -1 for unsupported relations.
     *
     * @param rows the number of rows
     * @param maxMeasured the maximum number of rows to measure
     */
    public long dataBytes(Object relation, long rows, long maxMeasured) {
        if (rows == 0) {
            return 0;
        }
        long measured = 0;
        long bytes = 0;
        if (relation instanceof InternalRow[]) {
            InternalRow[] elements = (InternalRow[]) relation;
            for (; measured < elements.length && measured < maxMeasured; measured++) {
                bytes += size(elements[(int) measured]);
            }
        } else if (RelationRows.isSupported(relation)) {
            Iterator<?> iterator = new RelationRows((HashedRelation) relation);
            for (; iterator.hasNext() && measured < maxMeasured; measured++) {
                bytes += size((InternalRow) iterator.next());
            }
        } else {
            return -1;
        }
        return measured == 0 ? 0 : Math.round((double) bytes / measured * rows);
    }

    private static long size(InternalRow row) {
        return row instanceof UnsafeRow ? ((UnsafeRow) row).getSizeInBytes() : 8L * (row.numFields() + 1);
    }

    private static final class Column {
        private final Expression function;
        private final TypedImperativeAggregate<Object> typed;
        private Object state;

        @SuppressWarnings("unchecked")
        Column(Expression function) {
            this.function = function;
            this.typed = function instanceof TypedImperativeAggregate ? (TypedImperativeAggregate<Object>) function : null;
            this.state = typed == null ? null : typed.createAggregationBuffer();
        }

        void update(InternalRow row) {
            if (typed != null) {
                state = typed.update(state, row);
                return;
            }
            Expression child = Catalyst.first(function);
            Object value = child.eval(row);
            if (value != null && (state == null || precedes(child, value))) {
                state = InternalRow.copyValue(value);
            }
        }

        private boolean precedes(Expression child, Object value) {
            int order = TypeUtils.getInterpretedOrdering(child.dataType()).compare(value, state);
            if (function instanceof Min) {
                return order < 0;
            }
            if (function instanceof Max) {
                return order > 0;
            }
            throw new IllegalArgumentException("Cannot compute the aggregate function " + function);
        }

        Object value() {
            return typed == null ? state : typed.eval(state);
        }
    }
}
