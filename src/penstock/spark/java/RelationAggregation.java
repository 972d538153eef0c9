package penstock;

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

/** Aggregates the rows of a broadcast relation in the driver, without a query; see `filters.keys_of_relation`. */
public final class RelationAggregation {
    /** Returns what functions, bound to its rows, give of all rows of a broadcast relation; null if it holds none. */
    public InternalRow aggregate(Object relation, Seq<?> functions) {
        if (!(relation instanceof HashedRelation)) {
            return null;
        }
        Column[] columns = new Column[functions.size()];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = new Column((Expression) functions.apply(i));
        }
        for (Iterator<?> rows = new RelationRows((HashedRelation) relation); rows.hasNext();) {
            update(columns, (InternalRow) rows.next());
        }
        Object[] values = new Object[columns.length];
        for (int i = 0; i < columns.length; i++) {
            values[i] = columns[i].value();
        }
        return new GenericInternalRow(values);
    }

    /**
     * Returns the bytes that the rows of a broadcast relation take by themselves, of the sizes of the first ones; the
     * relation's own size counts the pages of memory that it was given. -1 if it is of an unknown kind.
     *
     * @param rows how many rows it has
     * @param most how many rows to look at
     */
    public long dataBytes(Object relation, long rows, long most) {
        if (rows == 0) {
            return 0;
        }
        long looked = 0;
        long bytes = 0;
        if (relation instanceof InternalRow[]) {
            InternalRow[] all = (InternalRow[]) relation;
            for (; looked < all.length && looked < most; looked++) {
                bytes += size(all[(int) looked]);
            }
        } else if (RelationRows.areKnown(relation)) {
            Iterator<?> each = new RelationRows((HashedRelation) relation);
            for (; each.hasNext() && looked < most; looked++) {
                bytes += size((InternalRow) each.next());
            }
        } else {
            return -1;
        }
        return looked == 0 ? 0 : Math.round((double) bytes / looked * rows);
    }

    private static long size(InternalRow row) {
        return row instanceof UnsafeRow ? ((UnsafeRow) row).getSizeInBytes() : 8L * (row.numFields() + 1);
    }

    private static void update(Column[] columns, InternalRow row) {
        for (int i = 0; i < columns.length; i++) {
            columns[i].update(row);
        }
    }

    /** One function, and its value of the rows so far. */
    private static final class Column {
        private final Expression function;
        private final TypedImperativeAggregate<Object> typed;
        private Object state;

        Column(Expression function) {
            this.function = function;
            this.typed = typed(function);
            this.state = typed == null ? null : typed.createAggregationBuffer();
        }

        @SuppressWarnings("unchecked")
        private static TypedImperativeAggregate<Object> typed(Expression function) {
            return function instanceof TypedImperativeAggregate ? (TypedImperativeAggregate<Object>) function : null;
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
            throw new IllegalArgumentException("no way to compute " + function);
        }

        Object value() {
            return typed == null ? state : typed.eval(state);
        }
    }
}
