package penstock.delegation;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BiConsumer;
import java.util.function.Predicate;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.command.DataWritingCommand;
import org.apache.spark.sql.execution.command.DataWritingCommandExec;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.unsafe.Platform;

import py4j.GatewayServer;

import scala.Function1;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/**
 * Delegates queries to Penstock by a strategy of Spark's planner; a query starts when its rows are requested.
 *
 * The state is static, as the plans of all sessions of the JVM refer to it.
 */
public final class QueryHook {
    /** The number of delegated queries (`DelegationRule.ACCEPTED`), and of declined queries by reason. */
    private static final Map<String, Object> COUNTS = new ConcurrentHashMap<>();
    /** The extensions of sessions, shared by clones, to which the strategy has been added. */
    private static final Set<Object> INJECTED = Collections.synchronizedSet(
            Collections.newSetFromMap(new WeakHashMap<Object, Boolean>()));
    /**
     * Calls Python. py4j keeps a connection and a Python thread for each thread that has called, even after that thread has
     * ended, and a Connect server runs each query on its own thread. No call waits for the end of a query, so a single thread
     * suffices. It inherits neither session nor properties from the thread of the first query.
     */
    private static final ExecutorService PYTHON_CALLS = Executors.newSingleThreadExecutor(new ThreadFactory() {
        @Override
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(null, work, "penstock-python-calls", 0, false);
            thread.setDaemon(true);
            thread.setContextClassLoader(QueryHook.class.getClassLoader());
            return thread;
        }
    });
    private static volatile Service service;
    static volatile boolean hasEnded; // set by `end`

    /** The runner of queries (called with "run", "cancel" or "explain", and the query), and the rule that selects them. */
    public static final class Service {
        private final BiConsumer<Object, Object> runner;
        private final DelegationRule rule;
        final PythonThreads pythonThreads;

        Service(BiConsumer<Object, Object> runner, DelegationRule rule, PythonThreads pythonThreads) {
            this.runner = runner;
            this.rule = rule;
            this.pythonThreads = pythonThreads;
        }

        /** Runs or explains a query; waits for the return of the call, and rethrows its error. */
        void call(String action, DelegatedQuery query) throws InterruptedException {
            try {
                start(action, query).get();
            } catch (ExecutionException failed) {
                Platform.throwException(failed.getCause());
            }
        }

        /** Calls the runner without waiting, such as to cancel a query whose waiting thread was interrupted. */
        Future<?> start(final String action, final DelegatedQuery query) {
            return PYTHON_CALLS.submit(new Runnable() {
                @Override
                public void run() {
                    runner.accept(action, query);
                }
            });
        }
    }

    /** Sets the service for new queries; null disables delegation. */
    public void setService(Service newService) {
        service = newService;
    }

    /** Returns the current service, null without delegation. */
    public Service current() {
        return service;
    }

    /** Lets Spark run all queries, including those planned for Penstock: a program that ends cannot start threads. */
    public void end() {
        hasEnded = true;
        service = null;
    }

    /** Returns a service; the prefixes are separated by spaces. See `query_hook.create_service`. */
    public Service service(BiConsumer<Object, Object> runner, GatewayServer server, long threshold, boolean delegatesSmall,
            double minExchanges, Predicate<Object> engine, boolean hasSinkOptions, String prefixes, long hintLower,
            long hintUpper) {
        long[] hintBounds = {hintLower, hintUpper};
        DelegationRule rule = new DelegationRule(threshold, delegatesSmall, minExchanges, engine, hasSinkOptions,
                prefixes.split(" "), hintBounds);
        return new Service(runner, rule, new PythonThreads(server));
    }

    /** Installs the strategy in a session, its clones, and future sessions of the application. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // Janino requires a function of objects
    public void install(SparkSession session) {
        List<SparkStrategy> strategies = new ArrayList<>();
        for (SparkStrategy existingStrategy : Catalyst.each(session.experimental().extraStrategies())) {
            if (existingStrategy instanceof Strategy) {
                return;
            }
            strategies.add(existingStrategy);
        }
        strategies.add(new Strategy());
        session.experimental().extraStrategies_$eq(PythonUtils.toSeq(strategies));
        if (INJECTED.add(session.extensions())) {
            session.extensions().injectPlannerStrategy((Function1) new AbstractFunction1<Object, Object>() {
                @Override
                public Object apply(Object futureSession) {
                    return new Strategy();
                }
            });
        }
    }

    /** Tags a plan that Penstock itself passes to Spark's planner, so that no part of it is delegated. */
    public void exclude(LogicalPlan plan) {
        DelegationRule.exclude(plan);
    }

    /** Returns the number of delegated queries, and of declined queries by reason. */
    public Object counts() throws JsonProcessingException {
        Map<String, Object> counts = new TreeMap<>();
        for (Map.Entry<?, ?> count : COUNTS.entrySet()) {
            counts.put((String) count.getKey(), ((LongAdder) count.getValue()).sum());
        }
        return Answer.of(counts);
    }

    private static void count(String reason) {
        COUNTS.putIfAbsent(reason, new LongAdder());
        ((LongAdder) COUNTS.get(reason)).increment();
    }

    /** Called by the planner for each subplan, from the top, before Spark's own strategies. */
    public static final class Strategy extends SparkStrategy {
        @Override
        public Seq<SparkPlan> apply(LogicalPlan plan) {
            Service current = service;
            if (current == null || !current.rule.isEnabled()) {
                return writePlan(plan, false); // a command may read cached rows of a query that was delegated before
            }
            String decision;
            boolean isAccepted = false;
            try {
                decision = current.rule.decide(plan);
                if (plan instanceof InsertIntoHadoopFsRelationCommand) {
                    decision = current.rule.decideForCommand((InsertIntoHadoopFsRelationCommand) plan);
                    isAccepted = DelegationRule.ACCEPTED.equals(decision);
                    decision = isAccepted ? null : decision; // an accepted query is counted when it is visited
                }
            } catch (RuntimeException failed) { // Spark can plan the query despite the error
                return declineAfterError(plan, failed);
            } catch (LinkageError failed) { // the class does not fit this release of Spark
                return declineAfterError(plan, failed);
            } catch (StackOverflowError failed) { // Spark may need less stack for a deep plan
                return declineAfterError(plan, failed);
            }
            if (decision != null) {
                count(decision);
            }
            if (!DelegationRule.ACCEPTED.equals(decision)) {
                return writePlan(plan, isAccepted);
            }
            return Catalyst.seq((SparkPlan) new PenstockExec(plan, current));
        }

        /** Returns the plan of a writing command that has to run stages first; an empty list for other plans, which Spark plans. */
        private Seq<SparkPlan> writePlan(LogicalPlan plan, boolean isAccepted) {
            if (!(plan instanceof InsertIntoHadoopFsRelationCommand)) {
                return Catalyst.emptySeq();
            }
            DataWritingCommand command = (DataWritingCommand) plan;
            if (!WriteExec.isNeeded(command.query(), isAccepted)) {
                return Catalyst.emptySeq();
            }
            SparkPlan writeNode = new DataWritingCommandExec(command, planLater(command.query()));
            return Catalyst.seq((SparkPlan) new WriteExec(writeNode));
        }

        /** Declines a plan after an error. Counts by error class: messages may name columns and differ for each query. */
        private static Seq<SparkPlan> declineAfterError(LogicalPlan plan, Throwable thrown) {
            try {
                DelegationRule.exclude(plan); // so that no part of it is delegated
            } catch (StackOverflowError deeper) {
                thrown.addSuppressed(deeper);
            }
            count("Penstock failed to inspect the query: " + thrown.getClass().getSimpleName());
            return Catalyst.emptySeq();
        }
    }
}
