package penstock;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.function.BiConsumer;

import org.apache.spark.unsafe.Platform;

/**
 * Calls Python, always from one thread.
 *
 * py4j keeps a connection, and a thread of Python, for each thread that has called, also when that has ended. A Connect
 * server runs each query on a thread of its own. No call waits for a query's end, so one thread is enough.
 */
final class PythonCalls {
    private static final ExecutorService THREAD = Executors.newSingleThreadExecutor(new Maker());

    private PythonCalls() {
    }

    /** Calls, and returns when Python has; throws what the call throws. */
    static void call(BiConsumer<Object, Object> callee, Object first, Object second) throws InterruptedException {
        try {
            start(callee, first, second).get();
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
    }

    /** Calls behind all calls that were started before, and waits for none. */
    static Future<?> start(BiConsumer<Object, Object> callee, Object first, Object second) {
        return THREAD.submit(new Call(callee, first, second));
    }

    private static final class Call implements Runnable {
        private final BiConsumer<Object, Object> callee;
        private final Object first;
        private final Object second;

        Call(BiConsumer<Object, Object> callee, Object first, Object second) {
            this.callee = callee;
            this.first = first;
            this.second = second;
        }

        @Override
        public void run() {
            callee.accept(first, second);
        }
    }

    /** Makes a thread that takes over nothing of the query that happens to be the first: no session, no properties. */
    private static final class Maker implements ThreadFactory {
        @Override
        public Thread newThread(Runnable work) {
            Thread made = new Thread(null, work, "penstock-python-calls", 0, false);
            made.setDaemon(true);
            made.setContextClassLoader(PythonCalls.class.getClassLoader());
            return made;
        }
    }
}
