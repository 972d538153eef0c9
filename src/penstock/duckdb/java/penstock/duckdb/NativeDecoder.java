package penstock.duckdb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
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
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.storage.BlockManager;

import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

import penstock.bridge.SparkEnvironment;

/** Decodes exchanged column batches into rows, or concatenates the batches of several inputs for DuckDB. */
public final class NativeDecoder implements Function<Object, Object> {
    private static final int BATCH_COLUMN = 1; // an exchanged row is a routing number and a batch
    /** Decimals up to this precision are unscaled longs in batches. */
    private static final int MAX_LONG_DIGITS = 18;

    /** Returns the rows of an RDD of batches; `arguments` are the RDD and the columns of the rows. */
    @SuppressWarnings("unchecked")
    @Override
    public Object apply(Object arguments) {
        RDD<Object> batches = (RDD<Object>) ((List<?>) arguments).get(0);
        Seq<?> columns = (Seq<?>) ((List<?>) arguments).get(1);
        Object decoder = decoder(columns, columns);
        return batches.toJavaRDD().mapPartitions((FlatMapFunction<Iterator<Object>, Object>) decoder, true).rdd();
    }

    /** Returns a decoder of batches of columns, which returns only those of the output. */
    private static BatchDecoder decoder(Seq<?> columns, Seq<?> output) {
        List<StructField> fields = new ArrayList<>();
        Map<Object, Object> valuesByColumn = new HashMap<>();
        for (Object column : CollectionConverters.asJava(columns)) {
            DataType type = ((Attribute) column).dataType();
            boolean isLong = type instanceof DecimalType && ((DecimalType) type).precision() <= MAX_LONG_DIGITS;
            DataType batchType = isLong ? DataTypes.LongType : type;
            Expression value = new BoundReference(fields.size(), batchType, true);
            valuesByColumn.put(((Attribute) column).exprId(),
                    isLong ? new MakeDecimal(value, ((DecimalType) type).precision(), ((DecimalType) type).scale(), true) : value);
            fields.add(DataTypes.createStructField("c" + fields.size(), batchType, true));
        }
        List<Expression> values = new ArrayList<>();
        for (Object column : CollectionConverters.asJava(output)) {
            values.add((Expression) valuesByColumn.get(((Attribute) column).exprId()));
        }
        return new BatchDecoder(DataTypes.createStructType(fields), PythonUtils.toSeq(values));
    }

    /** Returns the rows of batches that the driver holds, as an RDD with a single task. */
    @SuppressWarnings("unchecked")
    public RDD<Object> rows(SparkContext context, List<?> batches, Seq<?> columns) {
        return (RDD<Object>) apply(Arrays.asList(new JavaSparkContext(context).parallelize(exchanged(batches), 1).rdd(), columns));
    }

    /** Returns the rows of batches that the driver holds, as a plan that runs no task and returns only the columns of the output. */
    @SuppressWarnings("unchecked")
    public LocalRelation relation(List<?> batches, Seq<?> columns, Seq<?> output) {
        List<InternalRow> rows = new ArrayList<>();
        Iterator<Object> decoded = decoder(columns, output).call(exchanged(batches).iterator());
        while (decoded.hasNext()) {
            rows.add(((InternalRow) decoded.next()).copy());
        }
        return new LocalRelation((Seq<Attribute>) output, PythonUtils.toSeq(rows), false, Option.empty());
    }

    /** Returns batches in the form of exchanged rows. */
    private static List<Object> exchanged(List<?> batches) {
        List<Object> rows = new ArrayList<>();
        for (Object batch : batches) {
            rows.add(new GenericInternalRow(new Object[] {0, batch}));
        }
        return rows;
    }

    /** Returns Spark's local directories in this process, separated by commas, as its Python workers get them. */
    public String localFolders() {
        BlockManager blocks = (BlockManager) SparkEnvironment.get("blockManager", BlockManager.class);
        return String.join(",", blocks.diskBlockManager().localDirsString());
    }

    /** Concatenates the batches of several RDDs partition by partition, each tagged with the number of its RDD. */
    @SuppressWarnings("unchecked")
    public RDD<Object> concatenate(List<?> inputs) {
        Object concatenator = new Concatenator();
        JavaRDD<Object> concatenated = null;
        for (int i = 0; i < inputs.size(); i++) {
            JavaRDD<Object> batches = ((RDD<Object>) inputs.get(i)).toJavaRDD().map(new InputTagger(i));
            concatenated = concatenated == null ? batches
                    : concatenated.zipPartitions(batches, (FlatMapFunction2<Iterator<Object>, Iterator<Object>, Object>) concatenator);
        }
        return concatenated.rdd();
    }

    private static final class InputTagger implements org.apache.spark.api.java.function.Function<Object, Object> {
        private static final long serialVersionUID = 1L;
        private final int inputNumber;

        InputTagger(int inputNumber) {
            this.inputNumber = inputNumber;
        }

        @Override
        public Object call(Object batch) {
            return new GenericInternalRow(new Object[] {inputNumber, ((InternalRow) batch).getBinary(BATCH_COLUMN)});
        }
    }

    private static final class Concatenator implements FlatMapFunction2<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        @Override
        public Iterator<Object> call(Object preceding, Object batches) {
            final Iterator<?> first = (Iterator<?>) preceding;
            final Iterator<?> second = (Iterator<?>) batches;
            return new Iterator<Object>() {
                @Override
                public boolean hasNext() {
                    return first.hasNext() || second.hasNext();
                }

                @Override
                public Object next() {
                    return first.hasNext() ? first.next() : second.next();
                }
            };
        }
    }

    private static final class BatchDecoder implements FlatMapFunction<Object, Object> {
        private static final long serialVersionUID = 1L;
        private final StructType batchSchema;
        @SuppressWarnings("serial") // all expressions and all of Scala's sequences are serializable
        private final Seq<Expression> values;

        BatchDecoder(StructType batchSchema, Seq<Expression> values) {
            this.batchSchema = batchSchema;
            this.values = values;
        }

        @SuppressWarnings({"rawtypes", "unchecked"}) // iterators of objects: Janino generates no bridge methods
        @Override
        public Iterator<Object> call(Object rows) {
            ArrowConverters$ converters = ArrowConverters$.MODULE$;
            scala.collection.Iterator batches = CollectionConverters.asScala((Iterator<?>) rows);
            Object messages = batches.map(new AbstractFunction1<Object, Object>() {
                @Override
                public Object apply(Object row) {
                    return ((InternalRow) row).getBinary(BATCH_COLUMN);
                }
            });
            Object decoded = converters.fromBatchIterator((scala.collection.Iterator) messages, batchSchema, "UTC", false, false,
                    TaskContext.get());
            Function1 projection = UnsafeProjection.create(values); // each row overwrites the previous row in memory
            return CollectionConverters.asJava(((scala.collection.Iterator) decoded).map(projection));
        }
    }
}
