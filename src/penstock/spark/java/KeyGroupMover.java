package penstock;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.streaming.state.ColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.rocksdb.EnvOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksIterator;
import org.rocksdb.SstFileWriter;

/**
 * Moves the state of one store from old key groups to new ones as sorted bytes: a key is decoded only to learn its
 * group, and a new group's database is made of files that RocksDB takes over whole, without inserting row by row.
 *
 * Compiled inside Spark by Janino, which knows neither lambdas nor inferred type arguments; hence the plain style.
 * An element "0,4|0,4,8" is a task: read old groups 0 and 4, write new groups 0, 4 and 8. With nothing to write the
 * groups are read and checked only. Answers are lines of tab-separated words.
 */
public final class KeyGroupMover implements FlatMapFunction {
    private static final int PREFIX = 2;
    private static final long FILE_BYTES = 64L << 20;
    private static final String DEFAULT_FAMILY = "default";

    private PartitionReaderFactory readers;
    private InputPartition[] groups;
    private int maxParallelism;
    private boolean keyed;

    private StateStoreConf storeConf;
    private Broadcast hadoopConf;
    private String target;
    private long operator;
    private String store;
    private long batch;
    private scala.collection.immutable.Map families;
    private scala.Option schemas;

    /** What is read, and how many groups keys are told apart into; an operator without a key has one group only. */
    public void reads(PartitionReaderFactory readers, Object groups, int maxParallelism, boolean keyed) {
        this.readers = readers;
        this.groups = (InputPartition[]) groups;
        this.maxParallelism = maxParallelism;
        this.keyed = keyed;
    }

    /** Where new groups are written, and with which encoders. */
    public void writes(StateStoreConf storeConf, Broadcast hadoopConf, String target, long operator, String store,
            long batch, scala.collection.immutable.Map families, scala.Option schemas) {
        this.storeConf = storeConf;
        this.hadoopConf = hadoopConf;
        this.target = target;
        this.operator = operator;
        this.store = store;
        this.batch = batch;
        this.families = families;
        this.schemas = schemas;
    }

    public Iterator call(Object task) throws Exception {
        String[] sides = ((String) task).split("\\|", -1);
        int[] reads = numbers(sides[0]);
        return (sides[1].isEmpty() ? check(reads) : move(reads, numbers(sides[1]))).iterator();
    }

    private List move(int[] reads, int[] writes) throws Exception {
        List answers = new ArrayList();
        List inputs = new ArrayList();
        Output[] outputs = new Output[maxParallelism];
        try {
            for (int i = 0; i < reads.length; i++) {
                inputs.add(new Input(reads[i]));
            }
            for (int i = 0; i < writes.length; i++) {
                outputs[writes[i]] = new Output(writes[i], (Input) inputs.get(0));
            }
            long[] read = new long[reads.length];
            merge(inputs, outputs, read);
            for (int i = 0; i < reads.length; i++) {
                answers.add("read\t" + reads[i] + "\t" + read[i]);
            }
            for (int i = 0; i < writes.length; i++) {
                answers.add(outputs[writes[i]].commit());
            }
        } finally {
            for (int i = 0; i < writes.length; i++) {
                if (outputs[writes[i]] != null) {
                    outputs[writes[i]].close();
                }
            }
            for (int i = 0; i < inputs.size(); i++) {
                ((Input) inputs.get(i)).close();
            }
        }
        return answers;
    }

    /** Walks all inputs side by side in the order of their keys, which are never equal across inputs. */
    private void merge(List inputs, Output[] outputs, long[] read) throws Exception {
        PriorityQueue queue = new PriorityQueue(Math.max(1, inputs.size()), new ByKey());
        for (int i = 0; i < inputs.size(); i++) {
            Input input = (Input) inputs.get(i);
            input.place = i;
            if (input.next()) {
                queue.add(input);
            }
        }
        while (!queue.isEmpty()) {
            Input input = (Input) queue.poll();
            Input after = (Input) queue.peek();
            boolean more = true;
            // A run of keys from one input needs no queue; with one input there is nothing else.
            while (more && (after == null || Arrays.compareUnsigned(input.key, after.key) < 0)) {
                read[input.place]++;
                Output output = outputs[input.group()];
                if (output != null) {
                    output.add(input);
                }
                more = input.next();
            }
            if (more) {
                queue.add(input);
            }
        }
    }

    private List check(int[] reads) throws Exception {
        List answers = new ArrayList();
        for (int i = 0; i < reads.length; i++) {
            Input input = new Input(reads[i]);
            try {
                long rows = 0;
                long foreign = 0;
                while (input.next()) {
                    rows++;
                    if (input.group() != reads[i]) {
                        foreign++;
                    }
                }
                answers.add("checked\t" + reads[i] + "\t" + rows + "\t" + foreign);
            } finally {
                input.close();
            }
        }
        return answers;
    }

    private static int[] numbers(String text) {
        String[] words = text.split(",");
        int[] found = new int[words.length];
        for (int i = 0; i < words.length; i++) {
            found[i] = Integer.parseInt(words[i]);
        }
        return found;
    }

    private static Object ask(Object thing, String name) throws Exception {
        for (Class type = thing.getClass(); type != null; type = type.getSuperclass()) {
            Method[] methods = type.getDeclaredMethods();
            for (int i = 0; i < methods.length; i++) {
                if (methods[i].getName().equals(name) && methods[i].getParameterCount() == 0) {
                    methods[i].setAccessible(true);
                    return methods[i].invoke(thing, new Object[0]);
                }
            }
        }
        throw new NoSuchMethodException(thing.getClass().getName() + "." + name);
    }

    private static void tell(Object thing, String name, long value) throws Exception {
        Method method = thing.getClass().getDeclaredMethod(name, new Class[] {Long.TYPE});
        method.setAccessible(true);
        method.invoke(thing, new Object[] {Long.valueOf(value)});
    }

    private static final class ByKey implements Comparator {
        public int compare(Object one, Object other) {
            return Arrays.compareUnsigned(((Input) one).key, ((Input) other).key);
        }
    }

    /** How the keys of one column family are told apart. */
    private static final class Family {
        RocksDBKeyStateEncoder encoder;
        StatePartitionKeyExtractor extractor;
        UnsafeProjection group;
        boolean internal;
    }

    /** An old key group, open at the version that is read. */
    private final class Input {
        final PartitionReader reader;
        final RocksDB rocksDb;
        final Map ids;
        final boolean prefixed;
        private final Family[] byId;
        private final ReadOptions options;
        private final RocksIterator rows;
        private boolean started;
        int place;
        byte[] key;

        Input(int group) throws Exception {
            reader = readers.createReader(groups[group]);
            // Reading the first row loads the version from the checkpoint, changelogs and all.
            reader.next();
            RocksDBStateStoreProvider provider = (RocksDBStateStoreProvider) ask(reader, "provider");
            rocksDb = provider.rocksDB();
            ids = (Map) ask(rocksDb, "colFamilyNameToInfoMap");
            prefixed = ((Boolean) ask(reader, "useColumnFamilies")).booleanValue();
            byId = keyed ? families(provider) : null;
            options = new ReadOptions().setTotalOrderSeek(true).setFillCache(false).setReadaheadSize(2L << 20);
            rows = ((org.rocksdb.RocksDB) ask(rocksDb, "db")).newIterator(options);
            rows.seekToFirst();
        }

        private Family[] families(RocksDBStateStoreProvider provider) throws Exception {
            scala.collection.immutable.Map extractors =
                (scala.collection.immutable.Map) ask(reader, "cfPartitionKeyExtractors");
            String name = "org$apache$spark$sql$execution$streaming$state$RocksDBStateStoreProvider$$keyValueEncoderMap";
            Map encoders = (Map) ask(provider, name);
            int highest = 0;
            for (Iterator i = ids.values().iterator(); i.hasNext();) {
                highest = Math.max(highest, ((ColumnFamilyInfo) i.next()).cfId());
            }
            Family[] found = new Family[highest + 1];
            for (Iterator i = encoders.entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                scala.Option extractor = extractors.get(entry.getKey());
                if (extractor.isEmpty()) {
                    continue;
                }
                Family family = new Family();
                family.encoder = (RocksDBKeyStateEncoder) ((scala.Tuple3) entry.getValue())._1();
                family.extractor = (StatePartitionKeyExtractor) extractor.get();
                family.group = projection(family.extractor.partitionKeySchema());
                ColumnFamilyInfo info = (ColumnFamilyInfo) ids.get(entry.getKey());
                family.internal = info != null && info.isInternal();
                int id = 0;
                if (info != null) {
                    id = info.cfId();
                }
                found[id] = family;
            }
            return found;
        }

        private UnsafeProjection projection(StructType schema) {
            StructField[] fields = schema.fields();
            Expression[] columns = new Expression[fields.length];
            for (int i = 0; i < fields.length; i++) {
                columns[i] = new BoundReference(i, fields[i].dataType(), fields[i].nullable());
            }
            HashPartitioning spread = new HashPartitioning(
                scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(columns), maxParallelism);
            return UnsafeProjection.create(spread.partitionIdExpression());
        }

        boolean next() throws Exception {
            if (started) {
                rows.next();
            }
            started = true;
            if (!rows.isValid()) {
                rows.status();
                return false;
            }
            key = rows.key();
            return true;
        }

        byte[] value() {
            return rows.value();
        }

        private Family family() {
            int id = 0;
            if (prefixed) {
                id = RocksDBStateStoreProvider.getColumnFamilyBytesAsId(key);
            }
            if (id >= byId.length || byId[id] == null) {
                throw new UnsupportedOperationException("no encoder for column family " + id);
            }
            return byId[id];
        }

        boolean internal() {
            return keyed && family().internal;
        }

        int group() {
            if (!keyed) {
                return 0;
            }
            Family family = family();
            byte[] encoded = prefixed ? Arrays.copyOfRange(key, PREFIX, key.length) : key;
            UnsafeRow decoded = family.encoder.decodeKey(encoded);
            return family.group.apply((InternalRow) family.extractor.partitionKey(decoded)).getInt(0);
        }

        void close() throws Exception {
            rows.close();
            options.close();
            reader.close();
        }
    }

    /** A new key group: an empty store that is given whole files. */
    private final class Output {
        private final int group;
        private final RocksDBStateStoreProvider provider;
        private final StateStore opened;
        private final RocksDB rocksDb;
        private final Path folder;
        private final EnvOptions environment = new EnvOptions();
        private final List files = new ArrayList();
        private SstFileWriter writer;
        private long rows;
        private long internalRows;
        private boolean committed;

        Output(int group, Input like) throws Exception {
            this.group = group;
            StatePartitionAllColumnFamiliesWriter spark = new StatePartitionAllColumnFamiliesWriter(
                storeConf, ((SerializableConfiguration) hadoopConf.value()).value(), group, target, operator, store,
                batch, families, schemas);
            provider = (RocksDBStateStoreProvider) spark.provider();
            opened = provider.getStore(batch, scala.Option.empty(), false, true);
            rocksDb = provider.rocksDB();
            if (like.prefixed) {
                createFamilies(like);
            }
            folder = Files.createTempDirectory(rocksDb.localRootDir().toPath(), "moved");
        }

        /** Keys begin with the number of their family, so families get the numbers they had. */
        private void createFamilies(Input like) throws Exception {
            List names = new ArrayList(like.ids.keySet());
            final Map ids = like.ids;
            names.sort(new Comparator() {
                public int compare(Object one, Object other) {
                    return ((ColumnFamilyInfo) ids.get(one)).cfId() - ((ColumnFamilyInfo) ids.get(other)).cfId();
                }
            });
            for (int i = 0; i < names.size(); i++) {
                String name = (String) names.get(i);
                scala.Option info = families.get(name);
                if (info.isDefined() && !DEFAULT_FAMILY.equals(name)) {
                    StatePartitionWriterColumnFamilyInfo family = (StatePartitionWriterColumnFamilyInfo) info.get();
                    StateStoreColFamilySchema schema = family.schema();
                    opened.createColFamilyIfAbsent(name, schema.keySchema(), schema.valueSchema(),
                        (org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec)
                            schema.keyStateEncoderSpec().get(),
                        family.useMultipleValuesPerKey(), ((ColumnFamilyInfo) ids.get(name)).isInternal());
                }
            }
            Map now = (Map) ask(rocksDb, "colFamilyNameToInfoMap");
            if (!now.equals(ids)) {
                throw new UnsupportedOperationException("column families are numbered " + ids + ", new ones " + now);
            }
        }

        void add(Input input) throws Exception {
            if (writer != null && writer.fileSize() > FILE_BYTES) {
                finishFile();
            }
            if (writer == null) {
                writer = new SstFileWriter(environment, rocksDb.rocksDbOptions());
                String file = folder.resolve(files.size() + ".sst").toString();
                files.add(file);
                writer.open(file);
            }
            writer.put(input.key, input.value());
            if (input.internal()) {
                internalRows++;
            } else {
                rows++;
            }
        }

        private void finishFile() throws Exception {
            writer.finish();
            writer.close();
            writer = null;
        }

        String commit() throws Exception {
            if (writer != null) {
                finishFile();
            }
            if (!files.isEmpty()) {
                IngestExternalFileOptions options = new IngestExternalFileOptions(true, false, false, false);
                try {
                    ((org.rocksdb.RocksDB) ask(rocksDb, "db")).ingestExternalFile(files, options);
                } finally {
                    options.close();
                }
            }
            if (rocksDb.conf().trackTotalNumberOfRows()) {
                tell(rocksDb, "numKeysOnWritingVersion_$eq", rows);
                tell(rocksDb, "numInternalKeysOnWritingVersion_$eq", internalRows);
            }
            opened.commit();
            committed = true;
            StateStoreCheckpointInfo info = opened.getStateStoreCheckpointInfo();
            String id = info.stateStoreCkptId().isDefined() ? (String) info.stateStoreCkptId().get() : "";
            return "written\t" + group + "\t" + (rows + internalRows) + "\t" + id;
        }

        void close() throws Exception {
            if (writer != null) {
                writer.close();
            }
            environment.close();
            if (!committed) {
                opened.abort();
            }
            provider.close();
        }
    }
}
