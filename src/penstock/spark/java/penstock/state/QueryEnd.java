package penstock.state;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Stops a streaming query between two batches.
 *
 * To stop a query, Spark interrupts the running batch. If a thread only set the query's state to terminated, at any
 * time, that would also interrupt a batch that was logged and is not planned yet. But the query's thread acquires its
 * progress lock to log the start of a batch, and again to log the end. A thread that holds the lock can detect that the
 * query waits at one of these two points, and sets the state at the second.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of elements
public final class QueryEnd {
    /** Maximum milliseconds for which the lock is held, so that the caller remains interruptible. */
    private static final long MAX_MILLIS = 200;
    /** Milliseconds between two checks of the thread; a batch takes longer. */
    private static final long CHECK_MILLIS = 2;
    private static final String RUNS = "it runs";
    private static final String BEGINS = "it begins a batch";
    private static final String ENDS = "it ends";
    private static final String WOKEN = "it was woken, and ends";
    private static final String ENDED = "it had ended";

    /** Waits about `MAX_MILLIS` for the query to end a batch or to sleep, then stops it; returns an outcome above. */
    public String end(ReentrantLock progressLock, AtomicReference state, Object active, Object terminated, Thread thread)
            throws InterruptedException {
        long deadline = System.nanoTime() + MAX_MILLIS * 1_000_000;
        while (System.nanoTime() < deadline && progressLock.tryLock(MAX_MILLIS, TimeUnit.MILLISECONDS)) {
            try {
                String outcome = endWhileLocked(progressLock, state, active, terminated, thread, deadline);
                if (outcome != BEGINS) {
                    return outcome;
                }
            } finally {
                progressLock.unlock(); // the lock is fair: a query that begins a batch gets it first
            }
        }
        return RUNS;
    }

    private static String endWhileLocked(
            ReentrantLock lock, AtomicReference state, Object active, Object terminated, Thread thread, long deadline)
            throws InterruptedException {
        while (thread.isAlive() && System.nanoTime() < deadline) {
            if (state.get() == terminated) {
                return ENDED;
            }
            if (lock.hasQueuedThread(thread)) {
                if (isExecuting(thread, "constructNextBatch")) {
                    return BEGINS;
                }
                return state.compareAndSet(active, terminated) ? ENDS : RUNS;
            }
            if (!isExecuting(thread, "waitTillTime")) {
                Thread.sleep(CHECK_MILLIS);
                continue;
            }
            String outcome = endWhileAsleep(lock, state, active, terminated, thread);
            if (outcome != RUNS) {
                return outcome;
            }
        }
        return RUNS;
    }

    /** Stops a query that sleeps until its next batch, and that may wake up at any moment. */
    private static String endWhileAsleep(
            ReentrantLock lock, AtomicReference state, Object active, Object terminated, Thread thread)
            throws InterruptedException {
        if (!state.compareAndSet(active, terminated)) {
            return RUNS;
        }
        if (isExecuting(thread, "waitTillTime")) { // the query checks the state when it wakes up
            thread.interrupt();
            return WOKEN;
        }
        while (thread.isAlive() && isExecuting(thread, "runActivatedStream")) {
            if (lock.hasQueuedThread(thread)) { // the query had checked the state before, and begins a batch
                state.set(active);
                if (thread.isInterrupted()) { // another thread has stopped the query meanwhile
                    state.set(terminated);
                    return ENDED;
                }
                return BEGINS;
            }
            Thread.sleep(CHECK_MILLIS);
        }
        return ENDS;
    }

    private static boolean isExecuting(Thread thread, String method) {
        StackTraceElement[] frames = thread.getStackTrace();
        for (int i = 0; i < frames.length; i++) {
            if (frames[i].getMethodName().equals(method)) {
                return true;
            }
        }
        return false;
    }
}
