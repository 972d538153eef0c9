package penstock.delegation;

import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveExecutionContext;
import org.apache.spark.sql.execution.adaptive.InsertAdaptiveSparkPlan;
import org.apache.spark.unsafe.Platform;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import py4j.Py4JException;

import scala.Option;

import penstock.bridge.Answer;
import penstock.plans.SqlText;

/** A query that Spark has delegated to Penstock; a thread waits for its result. */
public final class DelegatedQuery {
    private static final Logger LOG = LoggerFactory.getLogger(DelegatedQuery.class);
    private static final AtomicLong NUMBERS = new AtomicLong();
    /** Timeout of an explanation, in seconds. */
    private static final long EXPLAIN_TIMEOUT_SECONDS = 60;
    private static final Object DECLINED = new Object();

    private final long number = NUMBERS.incrementAndGet();
    private final QueryHook.Service service;
    private final LogicalPlan plan;
    private final SparkSession session;
    private final Properties properties;
    private final CompletableFuture<Object> answer = new CompletableFuture<>();
    private volatile String sqlText;
    private LogicalPlan cached;
    private boolean isDropped;

    DelegatedQuery(QueryHook.Service service, LogicalPlan plan, SparkSession session) {
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

    /** Returns facts of the command that writes the rows; null if there is no command, or no option for sinks. */
    public Object writeFacts() throws JsonProcessingException {
        Option<?> facts = plan.getTagValue(WritingCommands.WRITTEN);
        return facts.isEmpty() ? null : Answer.of(facts.get());
    }

    /** Whether the writing command deletes old files, or creates a folder, before it requests the rows. */
    public boolean preparesFolder() {
        return plan.getTagValue(WritingCommands.PREPARES_FOLDER).isDefined();
    }

    /** Computes the rows of the last stage, and caches them until `dropRows`. */
    public LogicalPlan cacheRows(Dataset<?> rows) {
        LogicalPlan rowsPlan = CachedRows.cache(rows);
        synchronized (this) {
            dropCached(); // of an earlier attempt
            cached = rowsPlan;
            if (isDropped) { // the waiting thread was interrupted meanwhile
                dropCached();
            }
        }
        return rowsPlan;
    }

    /** Drops the cached rows, and those that another thread is computing. */
    synchronized void dropRows() {
        isDropped = true;
        dropCached();
    }

    private void dropCached() {
        if (cached != null) {
            CachedRows.drop(cached);
            cached = null;
        }
    }

    public SparkSession session() {
        return session;
    }

    /** Returns a copy of the waiting thread's local properties, which its Spark jobs inherit. */
    public Properties properties() {
        return properties;
    }

    /** Returns the address of the waiting execution in Spark's UI; null without UI. */
    public String sparkPage() {
        String execution = properties.getProperty(SQLExecution.EXECUTION_ID_KEY());
        Option<?> address = session.sparkContext().uiWebUrl();
        return execution == null || address.isEmpty() ? null : address.get() + "/SQL/execution/?id=" + execution;
    }

    /** Returns the SQL text of the query; null if it has none, or before it runs. */
    public String sqlText() {
        return sqlText;
    }

    /** Answers with a plan that returns the rows. */
    public void complete(SparkPlan rows) {
        answer.complete(rows);
    }

    /** Answers with an explanation of the job; nested lines are indented. */
    public void explain(String explanation) {
        answer.complete(explanation);
    }

    /** Answers that Spark has to run the query itself. */
    public void decline() {
        answer.complete(DECLINED);
    }

    /** Answers with an error, which the waiting thread throws unchanged. */
    public void fail(Throwable error) {
        answer.completeExceptionally(error);
    }

    /** Returns an explanation of the job without running it; empty if there is none. */
    String explanation() {
        try {
            service.call("explain", this);
            Object explanation = answer.get(EXPLAIN_TIMEOUT_SECONDS, TimeUnit.SECONDS);
            return explanation == DECLINED ? "" : (String) explanation;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (Exception failed) { // Python has logged the reason
            return "";
        }
        return "";
    }

    /** Runs the query with Penstock and waits for it; an interrupt of the thread cancels the job. */
    SparkPlan result() {
        Object rows = DECLINED;
        sqlText = findText();
        try {
            rows = isSubmitted() ? answer.get() : DECLINED;
        } catch (InterruptedException interrupted) {
            service.cancel(this);
            Platform.throwException(interrupted);
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
        return rows == DECLINED ? fallbackPlan() : (SparkPlan) rows;
    }

    /** Plans the query as Spark does, with the settings of its session: Penstock declines it or has stopped. */
    private SparkPlan fallbackPlan() {
        LogicalPlan copy = (LogicalPlan) (Object) plan.clone();
        DelegationRule.exclude(copy);
        copy.setAnalyzed();
        Option<?> active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            // Only its settings and its tracker are used; cached data is already part of the plan.
            QueryExecution execution = Dataset.ofRows(session, copy).queryExecution();
            InsertAdaptiveSparkPlan adaptive = new InsertAdaptiveSparkPlan(new AdaptiveExecutionContext(session, execution));
            Object planned = session.sessionState().planner().plan(new ReturnAnswer(copy)).next();
            return QueryExecution$.MODULE$.prepareForExecution(
                    QueryExecution$.MODULE$.preparations(session, Option.apply(adaptive), false), (SparkPlan) planned);
        } finally {
            if (active.isDefined()) {
                SparkSession.setActiveSession((SparkSession) active.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }

    /** Returns the SQL text. Runs on the waiting thread, which may hold locks of the execution. */
    private String findText() {
        try {
            return SqlText.of(plan, session, properties.getProperty(SQLExecution.EXECUTION_ID_KEY()));
        } catch (RuntimeException failed) {
            LOG.debug("Cannot determine the SQL text of a query", failed);
            return null;
        }
    }

    /** Submits the query to Penstock; returns false if Penstock is not available. */
    private boolean isSubmitted() throws InterruptedException {
        if (QueryHook.hasEnded) {
            return false;
        }
        try {
            service.call("run", this);
        } catch (Py4JException gone) { // Python's callback server has stopped
            return false;
        }
        return true;
    }
}
