package penstock.state;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.spark.sql.execution.streaming.state.ColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.rocksdb.EnvOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.SstFileWriter;

import scala.Option;

/** A new key group: an empty store into which RocksDB ingests whole files, without inserting rows. */
final class KeyGroupWriter {
    /** Size from which a file is finished and another one begins. */
    private static final long MAX_FILE_BYTES = 64L << 20;

    private final int group;
    private final RocksDBStateStoreProvider provider;
    private final StateStore store;
    private final RocksDB rocksDb;
    private final Path folder; // has `files` until RocksDB ingests them
    private final EnvOptions environment = new EnvOptions();
    private final List<String> files = new ArrayList<>();
    private SstFileWriter writer;
    private long rows;
    private long internalRows;
    private boolean committed;

    /** Opens an empty store like `template`; `newFamilies` has a StatePartitionWriterColumnFamilyInfo for each name. */
    KeyGroupWriter(int group, RocksDBStateStoreProvider provider, long batch,
            scala.collection.Map<String, ?> newFamilies, KeyGroupReader template) throws Exception {
        this.group = group;
        this.provider = provider;
        store = provider.getStore(batch, Option.empty(), false, true);
        rocksDb = provider.rocksDB();
        if (template.hasFamilyPrefix) {
            createFamilies(newFamilies, template.families);
        }
        folder = Files.createTempDirectory(rocksDb.localRootDir().toPath(), "moved");
    }

    /** Creates the families in the order of their old numbers, as keys begin with the number of their family. */
    private void createFamilies(scala.collection.Map<String, ?> newFamilies, Map<?, ?> oldFamilies) throws Exception {
        Map<Object, Object> byNumber = new TreeMap<>();
        for (Map.Entry<?, ?> family : oldFamilies.entrySet()) {
            byNumber.put(Integer.valueOf(((ColumnFamilyInfo) family.getValue()).cfId()), family.getKey());
        }
        for (Object name : byNumber.values()) {
            Option<?> info = newFamilies.get((String) name);
            if (info.isDefined() && !StoreWriter.FAMILY.equals(name)) {
                StatePartitionWriterColumnFamilyInfo family = (StatePartitionWriterColumnFamilyInfo) info.get();
                StateStoreColFamilySchema schema = family.schema();
                Object encoding = schema.keyStateEncoderSpec().get();
                store.createColFamilyIfAbsent((String) name, schema.keySchema(), schema.valueSchema(),
                        (KeyStateEncoderSpec) encoding, family.useMultipleValuesPerKey(),
                        ((ColumnFamilyInfo) oldFamilies.get(name)).isInternal());
            }
        }
        Map<?, ?> created = (Map<?, ?>) PrivateMembers.call(rocksDb, "colFamilyNameToInfoMap");
        if (!created.equals(oldFamilies)) {
            throw new UnsupportedOperationException("The column families of the new store have other numbers: " + created + " instead of " + oldFamilies);
        }
    }

    /** Adds the current row of a reader; keys must be in ascending order. */
    void add(KeyGroupReader reader) throws Exception {
        if (writer != null && writer.fileSize() > MAX_FILE_BYTES) {
            finishFile();
        }
        if (writer == null) {
            writer = new SstFileWriter(environment, rocksDb.rocksDbOptions());
            String file = folder.resolve(files.size() + ".sst").toString();
            files.add(file);
            writer.open(file);
        }
        writer.put(reader.key(), reader.value());
        if (reader.isInternal()) {
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

    /** Commits the store; returns a line with the group, its number of rows, and the id of its version or nothing. */
    String commit() throws Exception {
        if (writer != null) {
            finishFile();
        }
        if (!files.isEmpty()) {
            IngestExternalFileOptions options = new IngestExternalFileOptions(true, false, false, false);
            try {
                ((org.rocksdb.RocksDB) PrivateMembers.call(rocksDb, "db")).ingestExternalFile(files, options);
            } finally {
                options.close();
            }
        }
        if (rocksDb.conf().trackTotalNumberOfRows()) {
            PrivateMembers.call(rocksDb, "numKeysOnWritingVersion_$eq", rows);
            PrivateMembers.call(rocksDb, "numInternalKeysOnWritingVersion_$eq", internalRows);
        }
        store.commit();
        committed = true;
        StateStoreCheckpointInfo info = store.getStateStoreCheckpointInfo();
        Option<?> id = info.stateStoreCkptId();
        return "written\t" + group + "\t" + (rows + internalRows) + "\t" + (id.isDefined() ? id.get() : "");
    }

    void close() throws Exception {
        if (writer != null) {
            writer.close();
        }
        environment.close();
        if (!committed) {
            store.abort();
        }
        provider.close();
    }
}
