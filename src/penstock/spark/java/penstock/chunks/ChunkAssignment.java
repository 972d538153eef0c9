package penstock.chunks;

import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;

import scala.PartialFunction;
import scala.PartialFunction$;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

import penstock.bridge.SparkEnvironment;

/**
 * Assigns chunks of exchanged rows to the tasks that read them, on request and in order. It runs in the driver.
 *
 * The chunks of each task, and the end after its last chunk, are recorded. So a retried task gets the same chunks and
 * returns the same rows.
 *
 * Until all tasks have requested a chunk, no task gets more than an even share: Spark may run a single task at a time,
 * and a function may read all of its input before it returns a row. A task that has read its share ends, which frees
 * its task slot for another task. The limit ends when the last task has requested a chunk, so that no chunk remains.
 */
final class ChunkAssignment implements RpcEndpoint {
    static final int NO_CHUNK = -1;

    private static final Cleaner CLEANER = Cleaner.create();
    private static ChunkAssignment current;

    final String name = "penstock-chunks-" + UUID.randomUUID();
    private final RpcEnv rpcEnv;
    private final Map<Object, Object> exchanges = new ConcurrentHashMap<>(); // by name

    private ChunkAssignment(RpcEnv rpcEnv) {
        this.rpcEnv = rpcEnv;
    }

    /** Returns the instance of the running Spark application. */
    static synchronized ChunkAssignment current() {
        RpcEnv rpcEnv = (RpcEnv) SparkEnvironment.get("rpcEnv", RpcEnv.class);
        if (current == null || current.rpcEnv != rpcEnv) {
            current = new ChunkAssignment(rpcEnv);
            rpcEnv.setupEndpoint(current.name, current);
        }
        return current;
    }

    @Override
    public RpcEnv rpcEnv() {
        return rpcEnv;
    }

    /** Registers an exchange by name, until no plan refers to its rows any more. */
    void register(Object rows, String exchange, int chunks, int tasks) {
        exchanges.put(exchange, new Exchange(chunks, tasks));
        CLEANER.register(rows, removal(exchange));
    }

    /** Returns the removal of an exchange, without a reference to the rows: their garbage collection starts it. */
    private Runnable removal(final String exchange) {
        return new Runnable() {
            @Override
            public void run() {
                exchanges.remove(exchange);
            }
        };
    }

    /** Answers a request: the exchange, the task, and the number of chunks that the task has received. */
    @SuppressWarnings("unchecked") // a function of objects: Janino generates no bridge methods
    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(final RpcCallContext context) {
        Object answers = PartialFunction$.MODULE$.fromFunction(new AbstractFunction1<Object, Object>() {
            @Override
            public Object apply(Object request) {
                Object[] fields = (Object[]) request;
                Exchange exchange = (Exchange) exchanges.get(fields[0]);
                if (exchange == null) {
                    context.sendFailure(new IllegalStateException("The driver has no chunks of this exchange: its plan was released"));
                } else {
                    context.reply(exchange.chunk((Integer) fields[1], ((Integer) fields[2]).intValue()));
                }
                return BoxedUnit.UNIT;
            }
        });
        return (PartialFunction<Object, BoxedUnit>) answers;
    }

    /** The chunks of an exchange, and the chunks assigned to each task. */
    private static final class Exchange {
        private final int chunks;
        private final int tasks;
        private final int evenShare;
        private final Map<Object, Object> chunksByTask = new HashMap<>();
        private int nextChunk;

        Exchange(int chunks, int tasks) {
            this.chunks = chunks;
            this.tasks = tasks;
            evenShare = (chunks + tasks - 1) / tasks;
        }

        /** Returns a task's chunk by its index among the task's chunks, or NO_CHUNK. Two attempts may request it. */
        @SuppressWarnings("unchecked")
        synchronized Integer chunk(Integer task, int index) {
            if (!chunksByTask.containsKey(task)) {
                chunksByTask.put(task, new ArrayList<Object>());
            }
            List<Object> taskChunks = (List<Object>) chunksByTask.get(task);
            if (index == taskChunks.size()) {
                boolean isLimited = chunksByTask.size() < tasks; // other tasks have not requested a chunk yet
                taskChunks.add(isLimited && index >= evenShare || nextChunk == chunks ? NO_CHUNK : nextChunk++);
            }
            return (Integer) taskChunks.get(index);
        }
    }
}
