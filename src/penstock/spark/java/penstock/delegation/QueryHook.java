package penstock.delegation;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
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

import scala.Function1;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/**
 * A planner strategy that delegates queries to Penstock; a query starts when its rows are requested.
 *
 * There is one per JVM: the plans of all sessions refer to it.
 */
public final class QueryHook {
    private static final Map<String, Object> COUNTS = new ConcurrentHashMap<>();
    private static final Set<Object> INJECTED = Collections.synchronizedSet(
            Collections.newSetFromMap(new WeakHashMap<Object, Boolean>()));
    private static volatile Service service;
    static volatile boolean hasEnded;

    /** The runner of queries (called with "run", "cancel" or "explain", and the query), and the rule that selects them. */
    public static final class Service {
        private final BiConsumer<Object, Object> runner;
        private final DelegationRule rule;

        Service(BiConsumer<Object, Object> runner, DelegationRule rule) {
            this.runner = runner;
            this.rule = rule;
        }

        /** Runs or explains a query. */
        void call(String action, DelegatedQuery query) throws InterruptedException {
            PythonCalls.call(runner, action, query);
        }

        /** Cancels a query without waiting: the waiting thread was interrupted. */
        void cancel(DelegatedQuery query) {
            PythonCalls.start(runner, "cancel", query);
        }
    }

    /** Sets the service for new queries; null disables delegation. */
    public void use(Service next) {
        service = next;
    }

    /** Returns the current service, null without delegation. */
    public Service current() {
        return service;
    }

    /** Lets Spark run all queries, including planned ones: the program ends and can no longer start threads. */
    public void end() {
        hasEnded = true;
        service = null;
    }

    /** Returns a service; prefixes are separated by spaces. */
    public Service service(BiConsumer<Object, Object> runner, long threshold, boolean takesSmall, double fewestExchanges,
            Predicate<Object> engine, boolean dividesWrites, String prefixes, long firstHint, long lastHint) {
        long[] hints = {firstHint, lastHint};
        return new Service(runner, new DelegationRule(threshold, takesSmall, fewestExchanges, engine, dividesWrites,
                prefixes.split(" "), hints));
    }

    /** Installs the strategy in a session, its clones, and future sessions of the application. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // Janino requires a function of objects
    public void install(SparkSession session) {
        List<SparkStrategy> strategies = new ArrayList<>();
        for (SparkStrategy element : Catalyst.each(session.experimental().extraStrategies())) {
            if (element instanceof Strategy) {
                return;
            }
            strategies.add(element);
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

    /** Marks a plan that Penstock lets Spark plan, so that no part of it is delegated. */
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
            if (current == null || !current.rule.isOn()) {
                return planned(plan, false); // it may read data that was cached before
            }
            String decision;
            boolean isAccepted = false;
            try {
                decision = current.rule.decide(plan);
                if (plan instanceof InsertIntoHadoopFsRelationCommand) {
                    decision = current.rule.decideForCommand((InsertIntoHadoopFsRelationCommand) plan);
                    isAccepted = DelegationRule.ACCEPTED.equals(decision);
                    decision = isAccepted ? null : decision; // it is counted when the planner plans the query
                }
            } catch (RuntimeException failed) { // Spark can plan the query despite the error
                return failed(plan, failed);
            } catch (LinkageError failed) { // the class does not fit this release of Spark
                return failed(plan, failed);
            } catch (StackOverflowError failed) { // Spark may need less stack for a deep plan
                return failed(plan, failed);
            }
            if (decision != null) {
                count(decision);
            }
            if (!DelegationRule.ACCEPTED.equals(decision)) {
                return planned(plan, isAccepted);
            }
            return Catalyst.seq((SparkPlan) new PenstockExec(plan, current));
        }

        /** Returns the plan of a command that has to run stages first; an empty list for others, which Spark plans. */
        private Seq<SparkPlan> planned(LogicalPlan plan, boolean isAccepted) {
            if (!(plan instanceof InsertIntoHadoopFsRelationCommand)) {
                return Catalyst.none();
            }
            DataWritingCommand command = (DataWritingCommand) plan;
            if (!WriteExec.isNeeded(command.query(), isAccepted)) {
                return Catalyst.none();
            }
            SparkPlan plain = new DataWritingCommandExec(command, planLater(command.query()));
            return Catalyst.seq((SparkPlan) new WriteExec(plain));
        }

        /** Declines a plan after an error. Counts by error class: messages may name columns and differ for each query. */
        private static Seq<SparkPlan> failed(LogicalPlan plan, Throwable thrown) {
            try {
                DelegationRule.exclude(plan); // so that no part of it is delegated
            } catch (StackOverflowError deeper) {
                thrown.addSuppressed(deeper);
            }
            count("Penstock failed to inspect the query: " + thrown.getClass().getSimpleName());
            return Catalyst.none();
        }
    }
}
