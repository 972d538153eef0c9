package penstock.state;

import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.SerializableConfiguration;

import scala.Option;

/** A mover that creates the stores of new groups by Spark's own offline writer, available since 4.2. */
public abstract class StateMover extends GroupMover {
    private static final long serialVersionUID = 1L;

    private StateStoreConf storeConf;
    private Broadcast<SerializableConfiguration> hadoopConf;
    private String targetFolder;
    private long operator;
    private String store;
    long batch; // the batch of the new groups: it opens the version with its number, and writes the next
    @SuppressWarnings("serial") // all of Scala's maps are serializable
    scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families;
    private Option<StateSchemaProvider> schemas;

    /** Sets the folder, store and batch of the new groups, their column families, and their schemas. */
    public void setTarget(StateStoreConf storeConf, Broadcast<SerializableConfiguration> hadoopConf,
            String targetFolder, long operator, String store, long batch,
            scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families,
            Option<StateSchemaProvider> schemas) {
        this.storeConf = storeConf;
        this.hadoopConf = hadoopConf;
        this.targetFolder = targetFolder;
        this.operator = operator;
        this.store = store;
        this.batch = batch;
        this.families = families;
        this.schemas = schemas;
    }

    /** Returns the store provider of a new group, created by Spark's own writer. */
    StateStoreProvider provider(int group) {
        Object conf = hadoopConf.value();
        return new StatePartitionAllColumnFamiliesWriter(
                storeConf, ((SerializableConfiguration) conf).value(), group, targetFolder, operator, store, batch,
                families, schemas).provider();
    }
}
