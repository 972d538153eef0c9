package penstock.bridge;

import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.spark.connect.proto.ExecutePlanRequest;
import org.apache.spark.connect.proto.ReattachExecuteRequest;
import org.apache.spark.sql.connect.service.ExecuteKey;
import org.apache.spark.sql.connect.service.SparkConnectService$;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import org.sparkproject.connect.grpc.ForwardingServerCallListener;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.ServerCall;
import org.sparkproject.connect.grpc.ServerCallHandler;
import org.sparkproject.connect.grpc.ServerInterceptor;

/**
 * Cancels queries of Spark Connect clients that have disconnected.
 *
 * Spark lets such a query run on for minutes, as its client might reconnect. When a client is killed, its operating system
 * closes the connection, and the server detects that at once. A running client whose connection broke reconnects within
 * a second. So a query whose call was cancelled is cancelled a second later, unless its client has reconnected.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of messages
public final class ClientWatch implements ServerInterceptor {
    /** Time for a client to reconnect: PySpark's client retries after 50 ms, and then after 200 and 800 ms. */
    private static final long RECONNECT_MILLIS = 1000;
    private static final Logger LOG = LoggerFactory.getLogger(ClientWatch.class);
    private static final Timer TIMER = new Timer("penstock-client-watch", true);
    /** The number of open calls of each query (ExecuteKey); a query without open calls is removed. */
    private static final Map<Object, Object> OPEN_CALLS = new ConcurrentHashMap<>();

    @Override
    public ServerCall.Listener interceptCall(ServerCall call, Metadata headers, ServerCallHandler next) {
        return new WatchedCall(next.startCall(call, headers));
    }

    /** Tracks a call while it is open; calls that do not run or reattach a query pass through. */
    static final class WatchedCall extends ForwardingServerCallListener.SimpleForwardingServerCallListener {
        private final AtomicBoolean isOpen = new AtomicBoolean();
        private volatile ExecuteKey query;

        WatchedCall(ServerCall.Listener listener) {
            super(listener);
        }

        @Override
        public void onMessage(Object message) {
            Object identified = withOperationId(message);
            query = queryOf(identified);
            if (query != null && isOpen.compareAndSet(false, true)) {
                addOpenCalls(query, 1);
            }
            super.onMessage(identified);
        }

        @Override
        public void onComplete() {
            close();
            super.onComplete();
        }

        @Override
        public void onCancel() {
            boolean wasOpen = close();
            super.onCancel();
            if (wasOpen) {
                TIMER.schedule(cancellation(query), RECONNECT_MILLIS);
            }
        }

        /** Closes the call; returns whether it was an open call of a query. */
        boolean close() {
            boolean closes = isOpen.compareAndSet(true, false);
            if (closes) {
                addOpenCalls(query, -1);
            }
            return closes;
        }
    }

    /** Returns a task that cancels a query unless its client has an open call again. */
    static TimerTask cancellation(final ExecuteKey query) {
        return new TimerTask() {
            @Override
            public void run() {
                try {
                    if (!OPEN_CALLS.containsKey(query)) {
                        SparkConnectService$.MODULE$.executionManager().removeExecuteHolder(query, true);
                    }
                } catch (RuntimeException failed) { // an exception would stop the timer for all other clients, too
                    LOG.warn("Cannot cancel the query of a disconnected client", failed);
                }
            }
        };
    }

    /** Returns a request with an operation id, which cancelling needs; clients may leave the id to the server. */
    static Object withOperationId(Object message) {
        if (!(message instanceof ExecutePlanRequest)) {
            return message;
        }
        ExecutePlanRequest request = (ExecutePlanRequest) message;
        boolean hasId = !request.getOperationId().isEmpty();
        return hasId ? request : request.toBuilder().setOperationId(UUID.randomUUID().toString()).build();
    }

    static ExecuteKey queryOf(Object message) {
        if (message instanceof ExecutePlanRequest) {
            ExecutePlanRequest request = (ExecutePlanRequest) message;
            return new ExecuteKey(request.getUserContext().getUserId(), request.getSessionId(), request.getOperationId());
        }
        if (message instanceof ReattachExecuteRequest) {
            ReattachExecuteRequest request = (ReattachExecuteRequest) message;
            return new ExecuteKey(request.getUserContext().getUserId(), request.getSessionId(), request.getOperationId());
        }
        return null;
    }

    static void addOpenCalls(ExecuteKey query, int change) {
        synchronized (OPEN_CALLS) {
            Object previous = OPEN_CALLS.get(query);
            int calls = (previous == null ? 0 : ((Integer) previous).intValue()) + change;
            if (calls > 0) {
                OPEN_CALLS.put(query, Integer.valueOf(calls));
            } else {
                OPEN_CALLS.remove(query);
            }
        }
    }
}
