package penstock;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.Function;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.FlatMapFunction2;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import scala.collection.AbstractIterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What tasks do with exchanged columns: rows are made of them, or several inputs are put together for DuckDB. */
public final class NativeDecoder implements Function<Object, Object> {
    private static final int BATCH = 1;
    /** Decimals of up to so many digits are whole numbers in batches. */
    private static final int LONG_DIGITS = 18;

    /** Returns the rows of an RDD of batches. @param given the RDD, and the columns of the rows */
    @Override
    public Object apply(Object given) {
        RDD<?> batches = (RDD<?>) ((List<?>) given).get(0);
        List<StructField> fields = new ArrayList<>();
        List<Expression> values = new ArrayList<>();
        for (Object each : CollectionConverters.asJava((Seq<?>) ((List<?>) given).get(1))) {
            DataType type = ((Attribute) each).dataType();
            boolean isShort = type instanceof DecimalType && ((DecimalType) type).precision() <= LONG_DIGITS;
            DataType sent = isShort ? DataTypes.LongType : type;
            Expression value = new BoundReference(fields.size(), sent, true);
            values.add(isShort ? new MakeDecimal(value, ((DecimalType) type).precision(), ((DecimalType) type).scale(), true) : value);
            fields.add(DataTypes.createStructField("c" + fields.size(), sent, true));
        }
        Object decoding = new Decoding(DataTypes.createStructType(fields), PythonUtils.toSeq(values));
        return decoded(batches.toJavaRDD(), decoding).rdd();
    }

    @SuppressWarnings("unchecked")
    private static JavaRDD<Object> decoded(Object batches, Object decoding) {
        return ((JavaRDD<Object>) batches).mapPartitions((FlatMapFunction<Iterator<Object>, Object>) decoding, true);
    }

    /** Returns the batches of several RDDs, each with the number of its RDD, task by task one after the other. */
    @SuppressWarnings("unchecked")
    public RDD<Object> together(List<?> inputs) {
        JavaRDD<Object> all = null;
        for (int i = 0; i < inputs.size(); i++) {
            Object numbered = new Numbered(i);
            JavaRDD<Object> one = ((RDD<Object>) inputs.get(i)).toJavaRDD();
            if (all == null) {
                all = one.mapPartitions((FlatMapFunction<Iterator<Object>, Object>) numbered, true);
            } else {
                all = all.zipPartitions(one, (FlatMapFunction2<Iterator<Object>, Iterator<Object>, Object>) numbered);
            }
        }
        return all.rdd();
    }

    /** Puts the batches of an input behind others, with a number. */
    private static final class Numbered implements FlatMapFunction<Object, Object>, FlatMapFunction2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;
        private final int number;

        Numbered(int number) {
            this.number = number;
        }

        @Override
        public Iterator<Object> call(Object rows) {
            return new Behind(null, (Iterator<?>) rows, number);
        }

        @Override
        public Iterator<Object> call(Object before, Object rows) {
            return new Behind((Iterator<?>) before, (Iterator<?>) rows, number);
        }
    }

    /** Rows, and behind them batches with a number. */
    private static final class Behind implements Iterator<Object> {
        private final Iterator<?> before;
        private final Iterator<?> batches;
        private final int number;

        Behind(Iterator<?> before, Iterator<?> batches, int number) {
            this.before = before;
            this.batches = batches;
            this.number = number;
        }

        @Override
        public boolean hasNext() {
            return before != null && before.hasNext() || batches.hasNext();
        }

        @Override
        public Object next() {
            if (before != null && before.hasNext()) {
                return before.next();
            }
            return new GenericInternalRow(new Object[] {number, ((InternalRow) batches.next()).getBinary(BATCH)});
        }
    }

    /** Makes rows of the batches of a task. It goes to the executors. */
    private static final class Decoding implements FlatMapFunction<Object, Object> {
        private static final long serialVersionUID = 1L;
        private final StructType sent;
        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Seq<Expression> values;

        Decoding(StructType sent, Seq<Expression> values) {
            this.sent = sent;
            this.values = values;
        }

        @SuppressWarnings({"rawtypes", "unchecked"}) // the iterators are of objects, as Janino makes no bridge methods
        @Override
        public Iterator<Object> call(Object rows) {
            ArrowConverters$ converters = ArrowConverters$.MODULE$;
            Object found = converters.fromBatchIterator((scala.collection.Iterator) new Batches((Iterator<?>) rows), sent, "UTC",
                    false, false, TaskContext.get());
            return new Rows((scala.collection.Iterator<?>) found, UnsafeProjection.create(values));
        }
    }

    /** The batches of rows. */
    private static final class Batches extends AbstractIterator<Object> {
        private final Iterator<?> rows;

        Batches(Iterator<?> rows) {
            this.rows = rows;
        }

        @Override
        public boolean hasNext() {
            return rows.hasNext();
        }

        @Override
        public Object next() {
            return ((InternalRow) rows.next()).getBinary(BATCH);
        }
    }

    /** Rows as Spark has them; the next one takes the place of the last in memory. */
    private static final class Rows implements Iterator<Object> {
        private final scala.collection.Iterator<?> rows;
        private final UnsafeProjection projection;

        Rows(scala.collection.Iterator<?> rows, UnsafeProjection projection) {
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
