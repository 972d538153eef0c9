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
 * closes the connection, and the server learns of it at once. A live client whose connection broke reconnects in less
 * than a second. So a query whose call was cancelled is cancelled a second later, unless its client has reconnected.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of messages
public final class ClientWatch implements ServerInterceptor {
    /** PySpark's client retries after 50 ms, and then after 200 and 800 ms. */
    private static final long RECONNECT_MILLIS = 1000;
    private static final Logger LOG = LoggerFactory.getLogger(ClientWatch.class);
    private static final Timer TIMER = new Timer("penstock-client-watch", true);
    private static final Map<Object, Object> CALLS = new ConcurrentHashMap<>();

    @Override
    public ServerCall.Listener interceptCall(ServerCall call, Metadata headers, ServerCallHandler next) {
        return new WatchedCall(next.startCall(call, headers));
    }

    /** Tracks an open call; calls other than queries pass through. */
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
                    if (!CALLS.containsKey(query)) {
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
        synchronized (CALLS) {
            Object previous = CALLS.get(query);
            int calls = (previous == null ? 0 : ((Integer) previous).intValue()) + change;
            if (calls > 0) {
                CALLS.put(query, Integer.valueOf(calls));
            } else {
                CALLS.remove(query);
            }
        }
    }
}
