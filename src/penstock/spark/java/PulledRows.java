package penstock;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.types.StructType;

/** Rows that tasks take piece by piece, whenever they are free; see `pulled`. */
public final class PulledRows {
    /** Returns the rows of an RDD whose partitions are the pieces. */
    public RDD<Object> over(RDD<Object> rows, int tasks) {
        return new PieceRdd(rows, tasks, null);
    }

    /** Returns for each task the port and the secret by which its Python worker gets the rows, as columns. */
    public RDD<Object> tickets(RDD<Object> rows, int tasks, StructType schema, String timeZone, boolean largeTypes,
            int mostRows, long mostBytes) {
        return new PieceRdd(rows, tasks, new PieceServer.Form(schema, timeZone, largeTypes, mostRows, mostBytes));
    }
}
