package penstock;

import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.unsafe.Platform;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import py4j.Py4JException;

import scala.Option;

/** A query that Spark has handed to Penstock, and the thread that waits for it. */
public final class HandedQuery {
    private static final Logger LOG = LoggerFactory.getLogger(HandedQuery.class);
    private static final AtomicLong NUMBERS = new AtomicLong();
    /** As long an explanation may take. */
    private static final long MOST_SECONDS = 60;
    private static final Object LEFT = new Object();

    private final long number = NUMBERS.incrementAndGet();
    private final QueryHook.Service service;
    private final LogicalPlan plan;
    private final SparkSession session;
    private final Properties properties;
    private final CompletableFuture<Object> answer = new CompletableFuture<>();
    private volatile String text;
    private LogicalPlan kept;
    private boolean isDropped;

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

    /** Whether what writes the rows deletes old files, or makes a folder, before it asks for them. */
    public boolean preparesFolder() {
        return plan.getTagValue(WritingCommands.PREPARES_FOLDER).isDefined();
    }

    /** Returns the rows of the last stage, computed now and kept until `drop`. */
    public LogicalPlan keep(Dataset<?> rows) {
        LogicalPlan computed = CachedRows.keep(rows);
        synchronized (this) {
            dropKept(); // of an earlier attempt
            kept = computed;
            if (isDropped) { // the thread that waited has been interrupted meanwhile
                dropKept();
            }
        }
        return computed;
    }

    /** Drops the rows that are kept, if any are, and those that may be computed just now. */
    synchronized void drop() {
        isDropped = true;
        dropKept();
    }

    private void dropKept() {
        if (kept != null) {
            CachedRows.drop(kept);
            kept = null;
        }
    }

    public SparkSession session() {
        return session;
    }

    /** What the thread that waits tells its Spark jobs, copied. */
    public Properties properties() {
        return properties;
    }

    /** Spark's own page of the execution that waits; null if there is none. */
    public String page() {
        String execution = properties.getProperty(SQLExecution.EXECUTION_ID_KEY());
        Option<?> address = session.sparkContext().uiWebUrl();
        return execution == null || address.isEmpty() ? null : address.get() + "/SQL/execution/?id=" + execution;
    }

    /** The SQL text that it was given as; null if it was not, or if it is not to be run. */
    public String text() {
        return text;
    }

    /** Answers with a plan that gives the rows. */
    public void complete(SparkPlan rows) {
        answer.complete(rows);
    }

    /** Answers with what the job would be; lines that belong to another are indented more. */
    public void tell(String explanation) {
        answer.complete(explanation);
    }

    /** Answers that Spark has to run the query itself. */
    public void leave() {
        answer.complete(LEFT);
    }

    /** Answers with an error, which the thread that waits throws as it is. */
    public void fail(Throwable error) {
        answer.completeExceptionally(error);
    }

    /** Returns what the job would be, without running anything; empty if that cannot be told. */
    String explanation() {
        try {
            service.explain(this);
            Object told = answer.get(MOST_SECONDS, TimeUnit.SECONDS);
            return told == LEFT ? "" : (String) told;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (Exception failed) { // the log of Python says why
            return "";
        }
        return "";
    }

    /** Lets Penstock run the query, and waits; a thread that is interrupted meanwhile cancels the job. */
    SparkPlan result() {
        Object rows = LEFT;
        text = givenText();
        try {
            rows = isAsked() ? answer.get() : LEFT;
        } catch (InterruptedException interrupted) {
            service.cancel(this);
            Platform.throwException(interrupted);
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
        return rows == LEFT ? PlainPlan.of(plan, session) : (SparkPlan) rows;
    }

    /** Asked for on the thread that waits, which may hold locks of the execution that the text is looked for in. */
    private String givenText() {
        try {
            return GivenText.of(plan, session, properties.getProperty(SQLExecution.EXECUTION_ID_KEY()));
        } catch (RuntimeException failed) {
            LOG.debug("the text of a query is not known", failed);
            return null;
        }
    }

    /** Asks Penstock to run the query; returns false if nobody is there who could. */
    private boolean isAsked() throws InterruptedException {
        if (QueryHook.hasEnded()) {
            return false;
        }
        try {
            service.run(this);
        } catch (Py4JException gone) { // Python does not answer: its callback server was stopped
            return false;
        }
        return true;
    }
}
