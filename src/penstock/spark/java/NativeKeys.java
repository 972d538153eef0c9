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
 * The keys of a Bloom filter, for DuckDB: it has no Bloom filters and uses a semi join with the keys instead.
 *
 * A tag of the filter's expression holds the number of the key set, and the broadcast relation of the keys, if any.
 */
public final class NativeKeys {
    private static final TreeNodeTag<Object> KEYS = new TreeNodeTag<Object>("penstock.native-keys");

    /** Tags a Bloom filter expression; `broadcast` is -1 if the keys do not come from a broadcast relation. */
    public Expression tagged(Expression filter, long number, long broadcast, long rows) {
        filter.setTagValue(KEYS, Arrays.<Object>asList(number, broadcast, rows));
        return filter;
    }

    /** Returns the number of a filter's key set, null without tag. */
    static Object number(Expression filter) {
        return filter.getTagValue(KEYS).isEmpty() ? null : ((List<?>) filter.getTagValue(KEYS).get()).get(0);
    }

    /** Returns the id of the broadcast relation of a tagged filter's keys. */
    static Object broadcast(Expression filter) {
        return ((List<?>) filter.getTagValue(KEYS).get()).get(1);
    }

    /** Returns the number of keys of a tagged filter. */
    static long rows(Expression filter) {
        return (Long) ((List<?>) filter.getTagValue(KEYS).get()).get(2);
    }

    /** Returns the join condition of columns with the keys of a tagged filter, in a table ``k``. */
    static String joinCondition(Expression filter) throws NativeSql.Declined {
        List<?> hashed = Catalyst.each(Catalyst.last(filter).children());
        StringBuilder sql = new StringBuilder();
        for (int i = 0; i < hashed.size(); i++) {
            Expression key = (Expression) hashed.get(i);
            if (NativeTypes.isFloating(key.dataType())) {
                throw new NativeSql.Declined("a comparison of floating-point numbers");
            }
            sql.append(i == 0 ? "" : " AND ").append(NativeSql.condition(key)).append(" = k.k").append(i);
        }
        return sql.toString();
    }

    /** Writes the rows of a plan of keys to a file. */
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

    /** The keys of rows; each overwrites the previous one in memory. */
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
