package penstock.exchange;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.execution.joins.ValueRowWithKeyIndex;

import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** All rows of a broadcast relation; each row may overwrite the previous row in memory. */
public final class RelationRows extends AbstractIterator<Object> {
    private final HashedRelation relation;
    /** The distinct keys of a relation with long keys or no rows, as Spark cannot list its rows; else numbered rows. */
    private final Iterator<?> keysOrRows;
    private final boolean hasLongKeys;
    /** For a relation with long keys, the rows of the current key. */
    private Iterator<?> rowsOfKey;

    public RelationRows(HashedRelation relation) {
        this.relation = relation.asReadOnlyCopy();
        hasLongKeys = relation instanceof LongHashedRelation;
        keysOrRows = hasLongKeys || isEmpty(relation) ? this.relation.keys() : this.relation.valuesWithKeyIndex();
    }

    /** Whether a relation supports iteration; the relation of a NOT IN with nulls does not. */
    public static boolean isSupported(Object relation) {
        String name = relation.getClass().getSimpleName();
        return relation instanceof LongHashedRelation || name.equals("UnsafeHashedRelation") || isEmpty(relation);
    }

    private static boolean isEmpty(Object relation) {
        return relation.getClass().getSimpleName().startsWith("EmptyHashedRelation");
    }

    @Override
    public boolean hasNext() {
        while (hasLongKeys && (rowsOfKey == null || !rowsOfKey.hasNext()) && keysOrRows.hasNext()) {
            rowsOfKey = relation.get((InternalRow) keysOrRows.next());
        }
        return hasLongKeys ? rowsOfKey != null && rowsOfKey.hasNext() : keysOrRows.hasNext();
    }

    @Override
    public Object next() {
        if (!hasLongKeys) {
            return ((ValueRowWithKeyIndex) keysOrRows.next()).getValue();
        }
        return hasNext() ? rowsOfKey.next() : keysOrRows.next(); // throws at the end
    }
}
