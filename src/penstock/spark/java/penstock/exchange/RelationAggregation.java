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
    /** Returns the results of aggregate functions over a broadcast relation; null if it is not a hashed relation. */
    public InternalRow aggregate(Object relation, Seq<?> functions) {
        if (!(relation instanceof HashedRelation)) {
            return null;
        }
        Accumulator[] accumulators = new Accumulator[functions.size()];
        for (int i = 0; i < accumulators.length; i++) {
            accumulators[i] = new Accumulator((Expression) functions.apply(i));
        }
        for (Iterator<?> rows = new RelationRows((HashedRelation) relation); rows.hasNext();) {
            InternalRow row = (InternalRow) rows.next();
            for (Accumulator accumulator : accumulators) {
                accumulator.update(row);
            }
        }
        Object[] values = new Object[accumulators.length];
        for (int i = 0; i < accumulators.length; i++) {
            values[i] = accumulators[i].value();
        }
        return new GenericInternalRow(values);
    }

    /**
     * Returns the bytes of a broadcast relation with `rows` rows, extrapolated from its first `maxMeasured` rows. The
     * size that the relation reports includes all allocated memory pages. Returns -1 for unsupported relations.
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

    /** The state of an aggregate function; for Min and Max, the result for the rows so far. */
    private static final class Accumulator {
        private final Expression function;
        private final TypedImperativeAggregate<Object> typed;
        private Object state;

        @SuppressWarnings("unchecked")
        Accumulator(Expression function) {
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
            if (value != null && (state == null || replacesState(child, value))) {
                state = InternalRow.copyValue(value);
            }
        }

        private boolean replacesState(Expression child, Object value) {
            int comparison = TypeUtils.getInterpretedOrdering(child.dataType()).compare(value, state);
            if (function instanceof Min) {
                return comparison < 0;
            }
            if (function instanceof Max) {
                return comparison > 0;
            }
            throw new IllegalArgumentException("Cannot compute the aggregate function " + function);
        }

        Object value() {
            return typed == null ? state : typed.eval(state);
        }
    }
}
