package penstock.state;

import java.util.Arrays;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.streaming.state.ColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksIterator;

import scala.Tuple3;
import scala.jdk.javaapi.CollectionConverters;

/** The rows of an old key group, in the order of their keys. */
final class KeyGroupReader extends GroupRows implements Comparable<Object> {
    /** Bytes of the column family's number, which precedes a key. */
    private static final int PREFIX_BYTES = 2;

    private static final long READ_AHEAD_BYTES = 2L << 20;
    private static final String ENCODERS =
            "org$apache$spark$sql$execution$streaming$state$RocksDBStateStoreProvider$$keyValueEncoderMap";

    /** The index of the reader in its task. */
    final int index;

    /** Whether keys begin with the number of their column family. */
    final boolean hasFamilyPrefix;

    /** The column families (ColumnFamilyInfo) by name. */
    final Map<?, ?> families;

    private final PartitionReader<?> reader;
    private final boolean hasKey;
    private final int maxParallelism;
    private final Family[] byId; // by the number of the family; null if `hasKey` is false
    private final ReadOptions options;
    private final RocksIterator rows;
    private boolean started;
    private byte[] key;

    /** Opens a key group; `hasKey` is false for an operator without a key, which has a single group. */
    KeyGroupReader(PartitionReader<?> reader, int index, int maxParallelism, boolean hasKey) throws Exception {
        this.reader = reader;
        this.index = index;
        this.hasKey = hasKey;
        this.maxParallelism = maxParallelism;
        // Reading the first row loads the version from the checkpoint, including changelogs.
        reader.next();
        RocksDBStateStoreProvider provider = (RocksDBStateStoreProvider) PrivateMembers.call(reader, "provider");
        RocksDB rocksDb = provider.rocksDB();
        families = (Map<?, ?>) PrivateMembers.call(rocksDb, "colFamilyNameToInfoMap");
        hasFamilyPrefix = ((Boolean) PrivateMembers.call(reader, "useColumnFamilies")).booleanValue();
        byId = hasKey ? families(provider) : null;
        options = new ReadOptions().setTotalOrderSeek(true).setFillCache(false).setReadaheadSize(READ_AHEAD_BYTES);
        rows = ((org.rocksdb.RocksDB) PrivateMembers.call(rocksDb, "db")).newIterator(options);
        rows.seekToFirst();
    }

    @Override
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

    byte[] key() {
        return key;
    }

    @Override
    public int compareTo(Object other) {
        return Arrays.compareUnsigned(key, ((KeyGroupReader) other).key);
    }

    byte[] value() {
        return rows.value();
    }

    /** Whether the row belongs to an internal column family of Spark. */
    boolean isInternal() {
        return hasKey && family().internal;
    }

    @Override
    int group() {
        if (!hasKey) {
            return 0;
        }
        Family family = family();
        byte[] encoded = hasFamilyPrefix ? Arrays.copyOfRange(key, PREFIX_BYTES, key.length) : key;
        UnsafeRow decoded = family.encoder.decodeKey(encoded);
        Object partitionKey = family.extractor.partitionKey(decoded);
        return family.group.apply((InternalRow) partitionKey).getInt(0);
    }

    @Override
    void close() throws Exception {
        rows.close();
        options.close();
        reader.close();
    }

    private Family family() {
        int id = hasFamilyPrefix ? (int) RocksDBStateStoreProvider.getColumnFamilyBytesAsId(key) : 0;
        if (id >= byId.length || byId[id] == null) {
            throw new UnsupportedOperationException("Spark has no encoder for column family " + id);
        }
        return byId[id];
    }

    private Family[] families(RocksDBStateStoreProvider provider) throws Exception {
        Object extractors = PrivateMembers.call(reader, "cfPartitionKeyExtractors");
        Map<?, ?> encoders = (Map<?, ?>) PrivateMembers.call(provider, ENCODERS);
        int highestId = 0;
        for (Object info : families.values()) {
            highestId = Math.max(highestId, ((ColumnFamilyInfo) info).cfId());
        }
        Family[] byId = new Family[highestId + 1];
        for (Map.Entry<?, ?> entry : encoders.entrySet()) {
            ColumnFamilyInfo info = (ColumnFamilyInfo) families.get(entry.getKey());
            Object extractor = CollectionConverters.asJava((scala.collection.Map<?, ?>) extractors).get(entry.getKey());
            if (extractor != null) {
                byId[info == null ? 0 : (int) info.cfId()] = new Family(
                        (RocksDBKeyStateEncoder) ((Tuple3<?, ?, ?>) entry.getValue())._1(),
                        (StatePartitionKeyExtractor) extractor, info != null && info.isInternal());
            }
        }
        return byId;
    }

    /** How to compute the key group of a row in a column family. */
    private final class Family {
        final RocksDBKeyStateEncoder encoder;
        final StatePartitionKeyExtractor extractor;
        final UnsafeProjection group;
        final boolean internal;

        Family(RocksDBKeyStateEncoder encoder, StatePartitionKeyExtractor extractor, boolean internal) {
            this.encoder = encoder;
            this.extractor = extractor;
            this.group = projection(extractor.partitionKeySchema(), maxParallelism);
            this.internal = internal;
        }
    }
}
