package penstock;

import java.util.concurrent.TimeUnit;
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
    private static final String BEGINS = "it begins a batch"; // which is to come to its end
    private static final String ENDS = "it ends";
    private static final String WOKEN = "it was woken, and ends";
    private static final String ENDED = "it had ended";

    /** Ends a query if it comes to the end of a batch within a moment; says whether it did. */
    public String end(ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        long until = System.nanoTime() + LONGEST * 1_000_000;
        while (System.nanoTime() < until && lock.tryLock(LONGEST, TimeUnit.MILLISECONDS)) {
            try {
                String found = endWhileLocked(lock, state, active, ended, thread, until);
                if (found != BEGINS) {
                    return found;
                }
            } finally {
                lock.unlock(); // the lock is fair: a query that begins a batch goes first
            }
        }
        return RUNS;
    }

    private static String endWhileLocked(
            ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread, long until)
            throws InterruptedException {
        while (thread.isAlive() && System.nanoTime() < until) {
            if (state.get() == ended) {
                return ENDED;
            }
            if (lock.hasQueuedThread(thread)) {
                if (runs(thread, "constructNextBatch")) {
                    return BEGINS;
                }
                return state.compareAndSet(active, ended) ? ENDS : RUNS;
            }
            if (!runs(thread, "waitTillTime")) {
                Thread.sleep(LOOK);
                continue;
            }
            String found = endOfSleeper(lock, state, active, ended, thread);
            if (found != RUNS) {
                return found;
            }
        }
        return RUNS;
    }

    /** Ends a query that waits for the time of its next batch, and which may wake by itself in this moment. */
    private static String endOfSleeper(
            ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        if (!state.compareAndSet(active, ended)) {
            return RUNS;
        }
        if (runs(thread, "waitTillTime")) { // and asks once it wakes whether the query has ended
            thread.interrupt();
            return WOKEN;
        }
        while (thread.isAlive() && runs(thread, "runActivatedStream")) {
            if (lock.hasQueuedThread(thread)) { // it had asked before, and begins a batch
                state.set(active);
                if (thread.isInterrupted()) { // by others, who have ended it meanwhile
                    state.set(ended);
                    return ENDED;
                }
                return BEGINS;
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
