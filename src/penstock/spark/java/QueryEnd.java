package penstock;

import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Ends a streaming query between two batches.
 *
 * To stop a query, Spark interrupts the batch that runs. A query that is only told that it has ended interrupts itself, if
 * it is told so after it has logged a batch and before it has planned it. But the thread of a query takes the lock of its
 * progress to log that it begins a batch, and takes it again to log that the batch is done. Whoever holds the lock sees the
 * thread come to stand at one of the two places, and tells it at the second.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of elements
public final class QueryEnd {
    /** Milliseconds for which the lock is held, so that who calls can be interrupted. */
    private static final long LONGEST = 200;
    /** Milliseconds between two looks at the thread: a batch takes more. */
    private static final long LOOK = 2;
    private static final String RUNS = "it runs";
    private static final String ENDS = "it ends";
    private static final String SLEEPS = "it ends once it is woken";
    private static final String ENDED = "it had ended";

    /** Ends a query if it comes to the end of a batch within a moment; says whether it did. */
    public String end(ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        lock.lock();
        try {
            long until = System.nanoTime() + LONGEST * 1_000_000;
            String found = RUNS;
            while (found == RUNS && thread.isAlive() && System.nanoTime() < until) {
                if (state.get() == ended) {
                    return ENDED;
                }
                if (lock.hasQueuedThread(thread)) {
                    if (runs(thread, "constructNextBatch")) {
                        return RUNS; // it is to come to the end of that batch
                    }
                    return state.compareAndSet(active, ended) ? ENDS : RUNS;
                }
                if (runs(thread, "waitTillTime")) {
                    found = endOfSleeper(lock, state, active, ended, thread);
                } else {
                    Thread.sleep(LOOK);
                }
            }
            return found;
        } finally {
            lock.unlock();
        }
    }

    /** Ends a query that waits for the time of its next batch, and which may wake by itself in this moment. */
    private static String endOfSleeper(
            ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        if (!state.compareAndSet(active, ended)) {
            return RUNS;
        }
        if (runs(thread, "waitTillTime")) {
            return SLEEPS; // and asks once it wakes whether the query has ended
        }
        while (thread.isAlive() && runs(thread, "runActivatedStream")) {
            if (lock.hasQueuedThread(thread)) { // it had asked before, and begins a batch
                return state.compareAndSet(ended, active) ? RUNS : ENDED;
            }
            Thread.sleep(LOOK);
        }
        return ENDS;
    }

    private static boolean runs(Thread thread, String method) {
        StackTraceElement[] frames = thread.getStackTrace();
        for (int i = 0; i < frames.length; i++) {
            if (frames[i].getMethodName().equals(method)) {
                return true;
            }
        }
        return false;
    }
}
