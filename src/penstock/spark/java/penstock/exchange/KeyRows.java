package penstock.exchange;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

import penstock.plans.Catalyst;

/**
 * The keys of a Bloom filter as rows, for a native engine, which uses a semi join instead of a Bloom filter.
 *
 * A tag of the filter's expression has the number of the key set, the id of the broadcast relation with the keys, and
 * the number of rows.
 */
public final class KeyRows {
    private static final TreeNodeTag<Object> KEYS = new TreeNodeTag<Object>("penstock.key-rows");

    /** Tags a Bloom filter expression; `broadcast` is -1 if there is no broadcast relation with the keys. */
    public Expression tagged(Expression filter, long number, long broadcast, long rows) {
        filter.setTagValue(KEYS, Arrays.<Object>asList(number, broadcast, rows));
        return filter;
    }

    /** Returns the tag of a filter, the arguments `number`, `broadcast` and `rows` of `tagged`; null without tag. */
    public static List<?> tagOf(Expression filter) {
        return filter.getTagValue(KEYS).isEmpty() ? null : (List<?>) filter.getTagValue(KEYS).get();
    }

    /** Writes the rows of a plan of keys to a file. */
    public void writePlan(SparkPlan plan, String path) throws Exception {
        Object[] rows = (Object[]) plan.executeCollect();
        ArrowFile.write(CollectionConverters.asScala(Arrays.asList(rows).iterator()), schema(plan.output()), path);
    }

    /** Writes the keys of the rows of a broadcast relation to a file. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // a function of objects
    public void writeRelation(HashedRelation relation, Seq<Expression> keys, Seq<Attribute> output, String path)
            throws Exception {
        Function1 projection = UnsafeProjection.create(keys, output); // each key overwrites the previous key in memory
        ArrowFile.write(new RelationRows(relation).map(projection), schema(keys), path);
    }

    private static StructType schema(Seq<?> keys) {
        List<StructField> fields = new ArrayList<>();
        for (Object key : Catalyst.each(keys)) {
            fields.add(DataTypes.createStructField("k" + fields.size(), ((Expression) key).dataType(), true));
        }
        return DataTypes.createStructType(fields);
    }
}
