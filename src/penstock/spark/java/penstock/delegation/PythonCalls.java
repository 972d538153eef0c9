package penstock.delegation;

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
    /** Its thread inherits neither session nor properties from the thread of the first query. */
    private static final ExecutorService THREAD = Executors.newSingleThreadExecutor(new ThreadFactory() {
        @Override
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(null, work, "penstock-python-calls", 0, false);
            thread.setDaemon(true);
            thread.setContextClassLoader(PythonCalls.class.getClassLoader());
            return thread;
        }
    });

    /** Calls Python and waits for the return; rethrows the error of the call. */
    static void call(BiConsumer<Object, Object> callee, Object first, Object second) throws InterruptedException {
        try {
            start(callee, first, second).get();
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
    }

    static Future<?> start(final BiConsumer<Object, Object> callee, final Object first, final Object second) {
        return THREAD.submit(new Runnable() {
            @Override
            public void run() {
                callee.accept(first, second);
            }
        });
    }
}
