package penstock.state;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Stops a streaming query between two batches.
 *
 * To stop a query, Spark interrupts the running batch. Setting the query's state to terminated instead also interrupts it
 * if that happens after a batch was logged and before it is planned. But the query's thread takes the lock of its progress
 * to log the start of a batch, and takes it again to log the end. A thread that holds the lock sees the query wait at one
 * of these two points, and sets the state at the second.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino does not infer types of elements
public final class QueryEnd {
    /** Milliseconds for which the lock is held at most, so that the caller remains interruptible. */
    private static final long MAX_MILLIS = 200;
    /** Milliseconds between two checks of the thread; a batch takes longer. */
    private static final long CHECK_MILLIS = 2;
    private static final String RUNS = "it runs";
    private static final String BEGINS = "it begins a batch";
    private static final String ENDS = "it ends";
    private static final String WOKEN = "it was woken, and ends";
    private static final String ENDED = "it had ended";

    /** Stops a query if it reaches the end of a batch within `MAX_MILLIS`; returns the outcome. */
    public String end(ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        long deadline = System.nanoTime() + MAX_MILLIS * 1_000_000;
        while (System.nanoTime() < deadline && lock.tryLock(MAX_MILLIS, TimeUnit.MILLISECONDS)) {
            try {
                String outcome = endWhileLocked(lock, state, active, ended, thread, deadline);
                if (outcome != BEGINS) {
                    return outcome;
                }
            } finally {
                lock.unlock(); // the lock is fair: a query that begins a batch gets it first
            }
        }
        return RUNS;
    }

    private static String endWhileLocked(
            ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread, long deadline)
            throws InterruptedException {
        while (thread.isAlive() && System.nanoTime() < deadline) {
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
                Thread.sleep(CHECK_MILLIS);
                continue;
            }
            String outcome = endWhileAsleep(lock, state, active, ended, thread);
            if (outcome != RUNS) {
                return outcome;
            }
        }
        return RUNS;
    }

    /** Stops a query that sleeps until its next batch, and that may wake up at any moment. */
    private static String endWhileAsleep(
            ReentrantLock lock, AtomicReference state, Object active, Object ended, Thread thread)
            throws InterruptedException {
        if (!state.compareAndSet(active, ended)) {
            return RUNS;
        }
        if (runs(thread, "waitTillTime")) { // it checks the state when it wakes up
            thread.interrupt();
            return WOKEN;
        }
        while (thread.isAlive() && runs(thread, "runActivatedStream")) {
            if (lock.hasQueuedThread(thread)) { // it had checked the state before, and begins a batch
                state.set(active);
                if (thread.isInterrupted()) { // by another thread that has stopped it meanwhile
                    state.set(ended);
                    return ENDED;
                }
                return BEGINS;
            }
            Thread.sleep(CHECK_MILLIS);
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
