package penstock;

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
 * Ends queries of Spark Connect clients that have gone.
 *
 * Spark lets such a query run on for minutes, as its client might come back. The system of a client that was killed
 * closes its connection, and the server learns of it at once. A client that lives, and whose connection broke, comes
 * back in less than a second. So a query whose call was cancelled is ended a second later, unless its client is back.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of messages
public final class ClientWatch implements ServerInterceptor {
    /** PySpark's client tries again after 50 ms, and then after 200 and 800 ms. */
    private static final long MILLISECONDS_TO_COME_BACK = 1000;
    private static final Logger LOG = LoggerFactory.getLogger(ClientWatch.class);
    private static final Timer TIMER = new Timer("penstock-client-watch", true);
    private static final Map<Object, Object> CALLS = new ConcurrentHashMap<>();

    @Override
    public ServerCall.Listener interceptCall(ServerCall call, Metadata headers, ServerCallHandler next) {
        return new Watched(next.startCall(call, headers));
    }

    /** A call that lives; other calls than those of queries pass. */
    static final class Watched extends ForwardingServerCallListener.SimpleForwardingServerCallListener {
        private final AtomicBoolean isOpen = new AtomicBoolean();
        private volatile ExecuteKey query;

        Watched(ServerCall.Listener listener) {
            super(listener);
        }

        @Override
        public void onMessage(Object message) {
            Object known = named(message);
            query = queryOf(known);
            if (query != null && isOpen.compareAndSet(false, true)) {
                count(query, 1);
            }
            super.onMessage(known);
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
                TIMER.schedule(new End(query), MILLISECONDS_TO_COME_BACK);
            }
        }

        /** Returns whether the call was one of a query, and open. */
        boolean close() {
            boolean closes = isOpen.compareAndSet(true, false);
            if (closes) {
                count(query, -1);
            }
            return closes;
        }
    }

    /** Ends a query, unless a call of its client is open again. */
    static final class End extends TimerTask {
        private final ExecuteKey query;

        End(ExecuteKey query) {
            this.query = query;
        }

        @Override
        public void run() {
            try {
                if (!CALLS.containsKey(query)) {
                    SparkConnectService$.MODULE$.executionManager().removeExecuteHolder(query, true);
                }
            } catch (RuntimeException failed) { // the timer would end, and with it the watch over all other clients
                LOG.warn("a query whose client has gone cannot be ended", failed);
            }
        }
    }

    /** Returns a request with an operation's id, by which it can be ended; clients may leave it to the server. */
    static Object named(Object message) {
        if (!(message instanceof ExecutePlanRequest)) {
            return message;
        }
        ExecutePlanRequest request = (ExecutePlanRequest) message;
        if (!request.getOperationId().isEmpty()) {
            return request;
        }
        return request.toBuilder().setOperationId(UUID.randomUUID().toString()).build();
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

    static void count(ExecuteKey query, int change) {
        synchronized (CALLS) {
            Object before = CALLS.get(query);
            int calls = (before == null ? 0 : ((Integer) before).intValue()) + change;
            if (calls > 0) {
                CALLS.put(query, Integer.valueOf(calls));
            } else {
                CALLS.remove(query);
            }
        }
    }
}
