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

/** A query that Spark has delegated to Penstock. Spark's thread, the *waiting thread*, waits for the reply. */
public final class DelegatedQuery {
    private static final Logger LOG = LoggerFactory.getLogger(DelegatedQuery.class);
    private static final AtomicLong NUMBERS = new AtomicLong();
    private static final long EXPLAIN_TIMEOUT_SECONDS = 60;
    /** The reply that Spark has to run the query itself. */
    private static final Object DECLINED = new Object();

    private final long number = NUMBERS.incrementAndGet();
    private final QueryHook.Service service;
    private final LogicalPlan plan;
    private final SparkSession session;
    private final Properties properties;
    private final CompletableFuture<Object> reply = new CompletableFuture<>();
    private final Integer pythonPort;
    private volatile String sqlText;
    private volatile boolean fillsCache;
    private LogicalPlan cached; // the rows of `cacheRows`
    private boolean isDropped;

    DelegatedQuery(QueryHook.Service service, LogicalPlan plan, SparkSession session) {
        this.service = service;
        this.plan = plan;
        this.session = session;
        this.properties = (Properties) session.sparkContext().getLocalProperties().clone();
        this.pythonPort = service.pythonThreads.port(Thread.currentThread());
    }

    public long number() {
        return number;
    }

    public LogicalPlan plan() {
        return plan;
    }

    /** Returns facts about the command that writes the rows; null if there is none, or no option for sinks is set. */
    public Object writeFacts() throws JsonProcessingException {
        Option<?> facts = plan.getTagValue(WritingCommands.WRITE_FACTS);
        return facts.isEmpty() ? null : Answer.of(facts.get());
    }

    /** Whether a command writes the rows. */
    public boolean isWritten() {
        return plan.getTagValue(WritingCommands.IS_WRITTEN).isDefined() || plan.getTagValue(WritingCommands.WRITE_FACTS).isDefined();
    }

    /** Whether the writing command deletes old files, or creates a folder, before it requests the rows. */
    public boolean preparesFolder() {
        return plan.getTagValue(WritingCommands.PREPARES_FOLDER).isDefined();
    }

    /** Computes the rows of the last stage, and caches them until `dropRows`. */
    public LogicalPlan cacheRows(Dataset<?> rows) {
        LogicalPlan rowsPlan = CachedRows.cache(rows);
        synchronized (this) {
            dropCached(); // the rows of an earlier attempt
            cached = rowsPlan;
            if (isDropped) { // the command has ended, such as by an interrupt of the waiting thread
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

    /** Returns a copy of the waiting thread's local properties, which the Spark jobs of the query inherit. */
    public Properties properties() {
        return properties;
    }

    /** Returns the address of the waiting execution in Spark's UI; null without execution or UI. */
    public String uiPage() {
        String execution = properties.getProperty(SQLExecution.EXECUTION_ID_KEY());
        Option<?> address = session.sparkContext().uiWebUrl();
        return execution == null || address.isEmpty() ? null : address.get() + "/SQL/execution/?id=" + execution;
    }

    /** Returns the SQL text of the query; null if it has none, or before `result`. */
    public String sqlText() {
        return sqlText;
    }

    /** Returns the port of the Python thread for which the waiting thread works; null if there is none. */
    public Integer pythonPort() {
        return pythonPort;
    }

    /** Whether the execution reads the query's rows from Spark's cache, which is filled now; false before `result`. */
    public boolean fillsCache() {
        return fillsCache;
    }

    /** Replies with a plan that returns the rows. */
    public void complete(SparkPlan rowsPlan) {
        reply.complete(rowsPlan);
    }

    /** Replies with an explanation of the job; nested lines are indented. */
    public void explain(String explanation) {
        reply.complete(explanation);
    }

    /** Replies that Spark has to run the query itself. */
    public void decline() {
        reply.complete(DECLINED);
    }

    /** Replies with an error, which the waiting thread throws unchanged. */
    public void fail(Throwable error) {
        reply.completeExceptionally(error);
    }

    /** Returns an explanation of the job without running it; empty if there is none. */
    String explanation() {
        try {
            service.call("explain", this);
            Object explanation = reply.get(EXPLAIN_TIMEOUT_SECONDS, TimeUnit.SECONDS);
            return explanation == DECLINED ? "" : (String) explanation;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (Exception failed) { // Python has logged the reason
            return "";
        }
        return "";
    }

    /** Runs or plans the query with Penstock; returns a plan of its rows: Spark's own plan if Penstock declines it. */
    SparkPlan result() {
        Object rowsPlan = DECLINED;
        try { // on this thread, which may hold locks of the execution
            QueryExecution execution = SqlText.execution(properties.getProperty(SQLExecution.EXECUTION_ID_KEY()));
            boolean isPart = execution != null && SqlText.isPart(plan, execution);
            sqlText = SqlText.of(plan, session, isPart ? execution.logical() : null);
            fillsCache = execution != null && !isPart && SqlText.hasCachedRows(execution);
        } catch (RuntimeException failed) {
            LOG.debug("Cannot determine the SQL text of a query", failed);
        }
        try {
            if (!QueryHook.hasEnded) {
                service.call("run", this);
                rowsPlan = reply.get();
            }
        } catch (Py4JException gone) { // Python's callback server has stopped
            return fallbackPlan();
        } catch (InterruptedException interrupted) { // an interrupt cancels the job
            service.start("cancel", this);
            Platform.throwException(interrupted);
        } catch (ExecutionException failed) {
            Platform.throwException(failed.getCause());
        }
        return rowsPlan == DECLINED ? fallbackPlan() : (SparkPlan) rowsPlan;
    }

    /** Plans the query as Spark does, with the settings of its session, if Penstock declines it or has stopped. */
    private SparkPlan fallbackPlan() {
        LogicalPlan copy = (LogicalPlan) (Object) plan.clone();
        DelegationRule.exclude(copy);
        copy.setAnalyzed();
        Option<?> active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            // Only the settings and the tracker of the execution are used; the plan contains cached data already.
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
}
