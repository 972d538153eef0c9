package penstock.chunks;

import java.io.IOException;
import java.util.Collections;
import java.util.UUID;

import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;

import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

import penstock.bridge.SparkEnvironment;

/**
 * The rows of chunks, read by a number of tasks. A task that has read a chunk requests the next chunk.
 *
 * A chunk is a partition of another RDD. Every task may read every chunk, so the location of a chunk is irrelevant.
 */
final class ChunkRdd extends RDD<Object> {
    private static final long serialVersionUID = 1L;

    private final RDD<Object> rows;
    private final Partition[] chunks;
    private final int tasks;
    private final String endpoint; // the name of the driver's `ChunkAssignment`
    private final String exchange = UUID.randomUUID().toString();
    /** The format for a Python worker, to which tasks return a ticket; null if tasks return the rows directly. */
    private final ChunkServer.Format format;

    ChunkRdd(RDD<Object> rows, int tasks, ChunkServer.Format format) {
        super(rows.sparkContext(), PythonUtils.toSeq(Collections.<Dependency<?>>singletonList(new AnyChunk(rows))), ClassTag$.MODULE$.apply(Object.class));
        this.rows = rows;
        this.chunks = rows.partitions();
        this.tasks = tasks;
        this.format = format;
        ChunkAssignment assignment = ChunkAssignment.current();
        endpoint = assignment.name;
        assignment.register(this, exchange, chunks.length, tasks);
    }

    @Override
    public Partition[] getPartitions() {
        Partition[] partitions = new Partition[tasks];
        for (int i = 0; i < tasks; i++) {
            partitions[i] = new Task(i);
        }
        return partitions;
    }

    @Override
    public Iterator<Object> compute(Partition split, TaskContext context) {
        Chunks taskRows = new Chunks(split.index(), context);
        if (format == null) {
            return taskRows;
        }
        try {
            return ChunkServer.start(taskRows, format, context);
        } catch (IOException error) {
            throw new IllegalStateException("Cannot send rows to the Python worker", error);
        }
    }

    /** The rows of all chunks that a task gets; requests a chunk when the previous chunk has been read. */
    final class Chunks extends AbstractIterator<Object> {
        private final int task;
        private final TaskContext context;
        private final RpcEndpointRef assignment;
        private Iterator<Object> chunk;
        private int receivedChunks;
        private boolean isAtEnd;

        Chunks(int task, TaskContext context) {
            this.task = task;
            this.context = context;
            assignment = RpcUtils.makeDriverRef(
                    endpoint, (SparkConf) SparkEnvironment.get("conf", SparkConf.class), (RpcEnv) SparkEnvironment.get("rpcEnv", RpcEnv.class));
        }

        boolean isWithinChunk() {
            return chunk != null && !hasEnded() && chunk.hasNext();
        }

        /** Whether the task has ended or is interrupted: another thread may then free the memory of a chunk. */
        private boolean hasEnded() {
            return context.isCompleted() || context.isInterrupted();
        }

        @Override
        public boolean hasNext() {
            while (!isWithinChunk()) {
                if (isAtEnd || !request()) {
                    return false;
                }
            }
            return true;
        }

        /** Requests the next chunk; returns false if there is none. */
        private boolean request() {
            if (hasEnded()) {
                throw new IllegalStateException("the task has ended"); // returning false would look like success
            }
            Object[] message = {exchange, task, receivedChunks};
            Object answer = assignment.askSync(message, ClassTag$.MODULE$.apply(Object.class));
            int chunkNumber = ((Integer) answer).intValue();
            isAtEnd = chunkNumber == ChunkAssignment.NO_CHUNK;
            if (!isAtEnd) {
                receivedChunks++;
                chunk = rows.iterator(chunks[chunkNumber], context);
            }
            return !isAtEnd;
        }

        @Override
        public Object next() {
            return chunk.next();
        }
    }

    private static final class Task implements Partition {
        private static final long serialVersionUID = 1L;
        private final int index;

        Task(int index) {
            this.index = index;
        }

        @Override
        public int index() {
            return index;
        }

        /** Required by Scala's trait, although Java's compiler does not see that. */
        public boolean org$apache$spark$Partition$$super$equals(Object other) {
            return this == other;
        }
    }

    /** A dependency that names no parent of a task: Spark would run the task at the location of one of its parents. */
    private static final class AnyChunk extends NarrowDependency<Object> {
        private static final long serialVersionUID = 1L;

        AnyChunk(RDD<Object> rows) {
            super(rows);
        }

        @Override
        public Seq<Object> getParents(int task) {
            return PythonUtils.toSeq(Collections.emptyList());
        }
    }
}
