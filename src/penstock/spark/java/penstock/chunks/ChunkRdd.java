package penstock.chunks;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Collections;
import java.util.UUID;

import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
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

/**
 * The rows of chunks, read by a number of tasks, each of which requests the next chunk whenever it is free.
 *
 * A chunk is a partition of another RDD. Every task may read every chunk, so its location is irrelevant.
 */
final class ChunkRdd extends RDD<Object> {
    private static final long serialVersionUID = 1L;

    private final RDD<Object> rows;
    private final Partition[] chunks;
    private final int tasks;
    private final String endpoint;
    private final String exchange = UUID.randomUUID().toString();
    /** The format for a Python worker that requests the rows; null if tasks return the rows directly. */
    private final ChunkServer.Format format;

    ChunkRdd(RDD<Object> rows, int tasks, ChunkServer.Format format) {
        super(rows.sparkContext(), PythonUtils.toSeq(Collections.<Dependency<?>>singletonList(new AnyChunk(rows))), ClassTag$.MODULE$.apply(Object.class));
        this.rows = rows;
        this.chunks = rows.partitions();
        this.tasks = tasks;
        this.format = format;
        ChunkAssignment assignment = ChunkAssignment.current();
        endpoint = assignment.name;
        assignment.begin(this, exchange, chunks.length, tasks);
    }

    /**
     * Calls a method of SparkEnv through method handles: Janino would resolve all of its methods, and some have protobuf
     * types that Spark does not ship.
     */
    static Object ofSparkEnv(String method, Class<?> type) {
        try {
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            MethodType getter = MethodType.methodType(SparkEnv.class);
            Object env = lookup.findStatic(SparkEnv.class, "get", getter).invokeWithArguments(Collections.emptyList());
            return lookup.findVirtual(SparkEnv.class, method, MethodType.methodType(type)).invokeWithArguments(Collections.singletonList(env));
        } catch (Throwable error) {
            throw new IllegalStateException("SparkEnv has no " + method + " in this process", error);
        }
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
        Chunks requested = new Chunks(split.index(), context);
        if (format == null) {
            return requested;
        }
        try {
            return ChunkServer.start(requested, format, context);
        } catch (IOException error) {
            throw new IllegalStateException("Cannot send rows to the Python worker", error);
        }
    }

    final class Chunks extends AbstractIterator<Object> {
        private final int task;
        private final TaskContext context;
        private final RpcEndpointRef assignment;
        private Iterator<Object> chunk;
        private int received;
        private boolean isEnd;

        Chunks(int task, TaskContext context) {
            this.task = task;
            this.context = context;
            assignment = RpcUtils.makeDriverRef(
                    endpoint, (SparkConf) ofSparkEnv("conf", SparkConf.class), (RpcEnv) ofSparkEnv("rpcEnv", RpcEnv.class));
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
                if (isEnd || !request()) {
                    return false;
                }
            }
            return true;
        }

        /** Requests the next chunk; returns false if there is none. */
        private boolean request() {
            if (hasEnded()) {
                throw new IllegalStateException("the task has ended"); // an error, so that it is not taken for the end of the rows
            }
            Object[] message = {exchange, task, received};
            Object answer = assignment.askSync(message, ClassTag$.MODULE$.apply(Object.class));
            int number = ((Integer) answer).intValue();
            isEnd = number == ChunkAssignment.NONE;
            if (!isEnd) {
                received++;
                chunk = rows.iterator(chunks[number], context);
            }
            return !isEnd;
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

    /** No parents, as every task may read every chunk: Spark would otherwise send all tasks to the location of a chunk. */
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
