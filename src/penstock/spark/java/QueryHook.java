package penstock;

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

/**
 * Lets Spark's planner ask whether Penstock takes a query, and hands it over when its rows are asked for.
 *
 * One for the JVM: plans of all sessions refer to it.
 */
public final class QueryHook {
    private static final Map<String, Object> COUNTS = new ConcurrentHashMap<>();
    private static final Set<Object> INJECTED = Collections.synchronizedSet(
            Collections.newSetFromMap(new WeakHashMap<Object, Boolean>()));
    private static volatile Service service;
    private static volatile boolean hasEnded;

    /** Who runs queries (it is called with "run", "cancel" or "explain", and the query), and which ones. */
    public static final class Service {
        private final BiConsumer<Object, Object> runner;
        private final HandoverRule rule;

        Service(BiConsumer<Object, Object> runner, HandoverRule rule) {
            this.runner = runner;
            this.rule = rule;
        }

        void run(HandedQuery query) throws InterruptedException {
            PythonCalls.call(runner, "run", query);
        }

        void explain(HandedQuery query) throws InterruptedException {
            PythonCalls.call(runner, "explain", query);
        }

        /** Nobody waits for it: the thread that waited for the query was interrupted. */
        void cancel(HandedQuery query) {
            PythonCalls.start(runner, "cancel", query);
        }
    }

    /** Lets queries be run from now on, or no more with null. */
    public void use(Service next) {
        service = next;
    }

    /** Returns who runs queries now, null of nobody. */
    public Service current() {
        return service;
    }

    /** Lets Spark run all queries from now on, planned ones too: the program ends, and can start no threads any more. */
    public void end() {
        hasEnded = true;
        service = null;
    }

    static boolean hasEnded() {
        return hasEnded;
    }

    /** Returns a service; prefixes are separated by spaces. */
    public Service service(BiConsumer<Object, Object> runner, long threshold, boolean takesSmall, double fewestExchanges,
            boolean dividesWrites, String prefixes, long firstHint, long lastHint) {
        long[] hints = {firstHint, lastHint};
        return new Service(runner,
                new HandoverRule(threshold, takesSmall, fewestExchanges, dividesWrites, prefixes.split(" "), hints));
    }

    /** Lets the planners of a session ask, of those that are cloned from it, and of those of its application made later. */
    @SuppressWarnings({"rawtypes", "unchecked"}) // Janino wants the maker's function to be one of objects
    public void install(SparkSession session) {
        List<SparkStrategy> all = new ArrayList<>();
        for (Object each : Catalyst.each(session.experimental().extraStrategies())) {
            if (each instanceof Strategy) {
                return;
            }
            all.add((SparkStrategy) each);
        }
        all.add(new Strategy());
        session.experimental().extraStrategies_$eq(PythonUtils.toSeq(all));
        if (INJECTED.add(session.extensions())) {
            session.extensions().injectPlannerStrategy((Function1) new StrategyMaker());
        }
    }

    /** Marks a plan that Penstock lets Spark plan, so that no part of it is handed over. */
    public void leave(LogicalPlan plan) {
        HandoverRule.leave(plan);
    }

    /** Returns how many queries were taken, and how many were left to Spark for which reason. */
    public Object counts() throws JsonProcessingException {
        Map<String, Object> found = new TreeMap<>();
        for (Object each : COUNTS.entrySet()) {
            Map.Entry<?, ?> count = (Map.Entry<?, ?>) each;
            found.put((String) count.getKey(), ((LongAdder) count.getValue()).sum());
        }
        return Answer.of(found);
    }

    private static void count(String what) {
        COUNTS.putIfAbsent(what, new LongAdder());
        ((LongAdder) COUNTS.get(what)).increment();
    }

    /** Makes the strategy of a session that is made later. */
    public static final class StrategyMaker extends AbstractFunction1<Object, Object> {
        @Override
        public Object apply(Object session) {
            return new Strategy();
        }
    }

    /** Asked by the planner for each part of a plan, from the top, before Spark's own strategies. */
    public static final class Strategy extends SparkStrategy {
        @Override
        public Seq<SparkPlan> apply(LogicalPlan plan) {
            Service current = service;
            if (current == null || !current.rule.isOn()) {
                return planned(plan, false); // it may read what was cached before
            }
            String answer;
            boolean isTaken = false;
            try {
                answer = current.rule.answer(plan);
                if (plan instanceof InsertIntoHadoopFsRelationCommand) {
                    answer = current.rule.answerOfQuery((InsertIntoHadoopFsRelationCommand) plan);
                    isTaken = HandoverRule.TAKEN.equals(answer);
                    answer = isTaken ? null : answer; // it is counted when the planner asks for the query
                }
            } catch (RuntimeException failed) { // Spark can plan the query, whatever is wrong here
                return failed(plan, failed);
            } catch (LinkageError failed) { // another release of Spark than this class was made for
                return failed(plan, failed);
            } catch (StackOverflowError failed) { // Spark may need less stack for a deep plan
                return failed(plan, failed);
            }
            if (answer != null) {
                count(answer);
            }
            if (!HandoverRule.TAKEN.equals(answer)) {
                return planned(plan, isTaken);
            }
            return Catalyst.seq((SparkPlan) new PenstockExec(plan, current));
        }

        /** Returns the plan of a command that has to run stages first; nothing for others, which Spark plans. */
        private Seq<SparkPlan> planned(LogicalPlan plan, boolean isTaken) {
            if (!(plan instanceof InsertIntoHadoopFsRelationCommand)) {
                return Catalyst.none();
            }
            DataWritingCommand command = (DataWritingCommand) plan;
            if (!WriteExec.isNeeded(command.query(), isTaken)) {
                return Catalyst.none();
            }
            SparkPlan plain = new DataWritingCommandExec(command, planLater(command.query()));
            return Catalyst.seq((SparkPlan) new WriteExec(plain));
        }

        /** Counts by the kind of what was thrown: its message may name columns, and would be counted for each query. */
        private static Seq<SparkPlan> failed(LogicalPlan plan, Throwable thrown) {
            try {
                HandoverRule.leave(plan); // nor is a part of it taken
            } catch (StackOverflowError deeper) {
                thrown.addSuppressed(deeper);
            }
            count("Penstock failed to look at it: " + thrown.getClass().getSimpleName());
            return Catalyst.none();
        }
    }
}
