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

/** Decodes exchanged column batches into rows, or concatenates the batches of several inputs for DuckDB. */
public final class NativeDecoder implements Function<Object, Object> {
    private static final int BATCH = 1;
    /** Decimals up to this precision are unscaled longs in batches. */
    private static final int LONG_DIGITS = 18;

    /** Returns the rows of an RDD of batches. @param arguments the RDD, and the columns of the rows */
    @Override
    public Object apply(Object arguments) {
        RDD<?> batches = (RDD<?>) ((List<?>) arguments).get(0);
        List<StructField> fields = new ArrayList<>();
        List<Expression> values = new ArrayList<>();
        for (Object column : CollectionConverters.asJava((Seq<?>) ((List<?>) arguments).get(1))) {
            DataType type = ((Attribute) column).dataType();
            boolean isLong = type instanceof DecimalType && ((DecimalType) type).precision() <= LONG_DIGITS;
            DataType batchType = isLong ? DataTypes.LongType : type;
            Expression value = new BoundReference(fields.size(), batchType, true);
            values.add(isLong ? new MakeDecimal(value, ((DecimalType) type).precision(), ((DecimalType) type).scale(), true) : value);
            fields.add(DataTypes.createStructField("c" + fields.size(), batchType, true));
        }
        Object decoding = new Decoding(DataTypes.createStructType(fields), PythonUtils.toSeq(values));
        return decoded(batches.toJavaRDD(), decoding).rdd();
    }

    @SuppressWarnings("unchecked")
    private static JavaRDD<Object> decoded(Object batches, Object decoding) {
        return ((JavaRDD<Object>) batches).mapPartitions((FlatMapFunction<Iterator<Object>, Object>) decoding, true);
    }

    /** Concatenates the batches of several RDDs partition by partition, each tagged with the number of its RDD. */
    @SuppressWarnings("unchecked")
    public RDD<Object> concatenate(List<?> inputs) {
        JavaRDD<Object> concatenated = null;
        for (int i = 0; i < inputs.size(); i++) {
            Object numbered = new Numbered(i);
            JavaRDD<Object> batches = ((RDD<Object>) inputs.get(i)).toJavaRDD();
            if (concatenated == null) {
                concatenated = batches.mapPartitions((FlatMapFunction<Iterator<Object>, Object>) numbered, true);
            } else {
                concatenated = concatenated.zipPartitions(batches, (FlatMapFunction2<Iterator<Object>, Iterator<Object>, Object>) numbered);
            }
        }
        return concatenated.rdd();
    }

    /** Appends the batches of an input to others, tagged with a number. */
    private static final class Numbered implements FlatMapFunction<Object, Object>, FlatMapFunction2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;
        private final int number;

        Numbered(int number) {
            this.number = number;
        }

        @Override
        public Iterator<Object> call(Object rows) {
            return new Concatenated(null, (Iterator<?>) rows, number);
        }

        @Override
        public Iterator<Object> call(Object preceding, Object rows) {
            return new Concatenated((Iterator<?>) preceding, (Iterator<?>) rows, number);
        }
    }

    /** Tagged batches, followed by the batches of a further input with its number. */
    private static final class Concatenated implements Iterator<Object> {
        private final Iterator<?> preceding;
        private final Iterator<?> batches;
        private final int number;

        Concatenated(Iterator<?> preceding, Iterator<?> batches, int number) {
            this.preceding = preceding;
            this.batches = batches;
            this.number = number;
        }

        @Override
        public boolean hasNext() {
            return preceding != null && preceding.hasNext() || batches.hasNext();
        }

        @Override
        public Object next() {
            if (preceding != null && preceding.hasNext()) {
                return preceding.next();
            }
            return new GenericInternalRow(new Object[] {number, ((InternalRow) batches.next()).getBinary(BATCH)});
        }
    }

    /** Decodes the batches of a task, on the executors. */
    private static final class Decoding implements FlatMapFunction<Object, Object> {
        private static final long serialVersionUID = 1L;
        private final StructType batchSchema;
        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Seq<Expression> values;

        Decoding(StructType batchSchema, Seq<Expression> values) {
            this.batchSchema = batchSchema;
            this.values = values;
        }

        @SuppressWarnings({"rawtypes", "unchecked"}) // iterators of objects: Janino generates no bridge methods
        @Override
        public Iterator<Object> call(Object rows) {
            ArrowConverters$ converters = ArrowConverters$.MODULE$;
            Object decoded = converters.fromBatchIterator((scala.collection.Iterator) new Batches((Iterator<?>) rows), batchSchema, "UTC",
                    false, false, TaskContext.get());
            return new Rows((scala.collection.Iterator<?>) decoded, UnsafeProjection.create(values));
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

    /** Spark's binary rows; each row overwrites the previous one in memory. */
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
