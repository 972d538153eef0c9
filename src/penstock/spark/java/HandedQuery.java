package penstock;

import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.unsafe.Platform;

/** A query that Spark has handed to Penstock, and the thread that waits for it. */
public final class HandedQuery {
    private static final AtomicLong NUMBERS = new AtomicLong();

    private final long number = NUMBERS.incrementAndGet();
    private final QueryHook.Service service;
    private final LogicalPlan plan;
    private final SparkSession session;
    private final Properties properties;
    private final CompletableFuture<Object> answer = new CompletableFuture<>();

    HandedQuery(QueryHook.Service service, LogicalPlan plan, SparkSession session) {
        this.service = service;
        this.plan = plan;
        this.session = session;
        this.properties = (Properties) session.sparkContext().getLocalProperties().clone();
    }

    public long number() {
        return number;
    }

    public LogicalPlan plan() {
        return plan;
    }

    /** Returns what is known of the command that writes the rows, null if none does or if nothing was said of sinks. */
    public Object written() throws JsonProcessingException {
        return WritingCommands.facts(plan);
    }

    public SparkSession session() {
        return session;
    }

    /** What the thread that waits tells its Spark jobs, copied. */
    public Properties properties() {
        return properties;
    }

    /** Answers with a plan that gives the rows. */
    public void complete(SparkPlan rows) {
        answer.complete(rows);
    }

    /** Answers with an error, which the thread that waits throws as it is. */
    public void fail(Throwable error) {
        answer.completeExceptionally(error);
    }

    /** Lets Penstock run the query, and waits; a thread that is interrupted meanwhile cancels the job. */
    SparkPlan result() {
        service.run(this);
        try {
            return (SparkPlan) answer.get();
        } catch (InterruptedException interrupted) {
            service.cancel(this);
            Platform.throwException(interrupted);
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
        throw new IllegalStateException("unreachable");
    }
}
