package penstock.chunks;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.types.StructType;

/** Rows that tasks request chunk by chunk; see `pulled_rows`. */
public final class PulledRows {
    /** Returns the rows of an RDD whose partitions are the chunks. */
    public RDD<Object> over(RDD<Object> rows, int tasks) {
        return new ChunkRdd(rows, tasks, null);
    }

    /** Returns an RDD with a row per task, its ticket: host, port and secret for the requests of its Python worker. */
    public RDD<Object> tickets(RDD<Object> rows, int tasks, StructType schema, String timeZone, boolean largeTypes,
            int maxRows, long maxBytes) {
        return new ChunkRdd(rows, tasks, new ChunkServer.Format(schema, timeZone, largeTypes, maxRows, maxBytes));
    }
}
