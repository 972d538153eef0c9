package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The keys that a Bloom filter was made of, for DuckDB, which has no such filter: it joins their rows.
 *
 * A tag of the filter's expression tells the number of the keys, and the broadcast relation they come from, if any.
 */
public final class NativeKeys {
    private static final TreeNodeTag<Object> KEYS = new TreeNodeTag<Object>("penstock.native-keys");

    /** Marks the expression that asks a Bloom filter; `broadcast` is -1 if the keys come from no relation. */
    public Expression tagged(Expression filter, long number, long broadcast, long rows) {
        filter.setTagValue(KEYS, Arrays.<Object>asList(number, broadcast, rows));
        return filter;
    }

    /** Returns the number of the keys of a filter, null if it is none that was marked. */
    static Object number(Expression filter) {
        return filter.getTagValue(KEYS).isEmpty() ? null : ((List<?>) filter.getTagValue(KEYS).get()).get(0);
    }

    /** Returns the broadcast relation that the keys of a marked filter come from. */
    static Object broadcast(Expression filter) {
        return ((List<?>) filter.getTagValue(KEYS).get()).get(1);
    }

    /** Returns how many rows the keys of a marked filter have. */
    static long rows(Expression filter) {
        return (Long) ((List<?>) filter.getTagValue(KEYS).get()).get(2);
    }

    /** Returns the condition that columns are among the keys of a marked filter, which are a table ``k``. */
    static String met(Expression filter) throws NativeSql.Declined {
        List<?> hashed = Catalyst.each(Catalyst.last(filter).children());
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < hashed.size(); i++) {
            Expression key = (Expression) hashed.get(i);
            if (NativeTypes.isFloating(key.dataType())) {
                throw new NativeSql.Declined("a comparison of floating-point numbers");
            }
            found.append(i == 0 ? "" : " AND ").append(NativeSql.condition(key)).append(" = k.k").append(i);
        }
        return found.toString();
    }

    /** Writes what a plan of keys gives to a file. */
    public void writePlan(SparkPlan plan, String path) throws Exception {
        Object[] rows = (Object[]) plan.executeCollect();
        ArrowFile.write(CollectionConverters.asScala(Arrays.asList(rows).iterator()), schema(plan.output()), path);
    }

    /** Writes the keys of the rows of a broadcast relation to a file. */
    public void writeRelation(HashedRelation relation, Seq<Expression> keys, Seq<Attribute> output, String path)
            throws Exception {
        UnsafeProjection projection = UnsafeProjection.create(keys, output);
        ArrowFile.write(new Keys(new RelationRows(relation), projection), schema(keys), path);
    }

    private static StructType schema(Seq<?> keys) {
        List<StructField> fields = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            fields.add(DataTypes.createStructField("k" + fields.size(), ((Expression) key).dataType(), true));
        }
        return DataTypes.createStructType(fields);
    }

    /** The keys of rows; the next ones take the place of the last in memory. */
    private static final class Keys extends AbstractIterator<Object> {
        private final Iterator<?> rows;
        private final UnsafeProjection projection;

        Keys(Iterator<?> rows, UnsafeProjection projection) {
            this.rows = rows;
            this.projection = projection;
        }

        @Override
        public boolean hasNext() {
            return rows.hasNext();
        }

        @Override
        public Object next() {
            return projection.apply((InternalRow) rows.next());
        }
    }
}
