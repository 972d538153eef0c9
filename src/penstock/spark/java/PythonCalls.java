package penstock;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.function.BiConsumer;

import org.apache.spark.unsafe.Platform;

/**
 * Calls Python from a single thread.
 *
 * py4j keeps a connection and a Python thread for each thread that has called, even after that thread has ended. A Connect
 * server runs each query on its own thread. No call waits for the end of a query, so a single thread suffices.
 */
final class PythonCalls {
    private static final ExecutorService THREAD = Executors.newSingleThreadExecutor(new CleanThreadFactory());

    private PythonCalls() {
    }

    /** Calls Python and waits for the return; rethrows the error of the call. */
    static void call(BiConsumer<Object, Object> callee, Object first, Object second) throws InterruptedException {
        try {
            start(callee, first, second).get();
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
    }

    /** Queues a call without waiting. */
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

    /** Creates a thread that inherits neither session nor properties from the thread of the first query. */
    private static final class CleanThreadFactory implements ThreadFactory {
        @Override
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(null, work, "penstock-python-calls", 0, false);
            thread.setDaemon(true);
            thread.setContextClassLoader(PythonCalls.class.getClassLoader());
            return thread;
        }
    }
}
