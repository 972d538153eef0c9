package penstock.exchange;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.execution.joins.ValueRowWithKeyIndex;

import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** All rows of a broadcast relation; each row may overwrite the previous one in memory. */
public final class RelationRows extends AbstractIterator<Object> {
    private final HashedRelation relation;
    /** Distinct keys, or rows with the number of their key; a relation with long keys only supports the former. */
    private final Iterator<?> outer;
    private final boolean hasKeys;
    private Iterator<?> rows;

    public RelationRows(HashedRelation relation) {
        this.relation = relation.asReadOnlyCopy();
        hasKeys = relation instanceof LongHashedRelation;
        outer = hasKeys || isEmpty(relation) ? this.relation.keys() : this.relation.valuesWithKeyIndex();
    }

    /** Whether a relation supports iteration; that of a NOT IN with nulls does not. */
    public static boolean isSupported(Object relation) {
        String name = relation.getClass().getSimpleName();
        return relation instanceof LongHashedRelation || name.equals("UnsafeHashedRelation") || isEmpty(relation);
    }

    private static boolean isEmpty(Object relation) {
        return relation.getClass().getSimpleName().startsWith("EmptyHashedRelation");
    }

    @Override
    public boolean hasNext() {
        while (hasKeys && (rows == null || !rows.hasNext()) && outer.hasNext()) {
            rows = relation.get((InternalRow) outer.next());
        }
        return hasKeys ? rows != null && rows.hasNext() : outer.hasNext();
    }

    @Override
    public Object next() {
        if (!hasKeys) {
            return ((ValueRowWithKeyIndex) outer.next()).getValue();
        }
        return hasNext() ? rows.next() : outer.next();
    }
}
