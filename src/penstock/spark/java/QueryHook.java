package penstock;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BiConsumer;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;

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
    private static volatile BiConsumer<Object, Object> runner;
    private static volatile HandoverRule rule;

    /** Sets who runs queries (it is called with "run" or "cancel", and the query), and which ones. */
    public void use(BiConsumer<Object, Object> runs, HandoverRule takes) {
        runner = runs;
        rule = takes;
    }

    /** Returns a rule; prefixes are separated by spaces. */
    public HandoverRule rule(long threshold, boolean takesSmall, String prefixes, long firstMark, long lastMark) {
        return new HandoverRule(threshold, takesSmall, prefixes.split(" "), new long[] {firstMark, lastMark});
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
        session.extensions().injectPlannerStrategy((Function1) new StrategyMaker());
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

    static void run(HandedQuery query) {
        runner.accept("run", query);
    }

    static void cancel(HandedQuery query) {
        runner.accept("cancel", query);
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
            HandoverRule current = rule;
            if (current == null || !current.isOn()) {
                return Catalyst.none();
            }
            String answer = current.answer(plan);
            if (answer != null) {
                count(answer);
            }
            return HandoverRule.TAKEN.equals(answer) ? Catalyst.seq((SparkPlan) new PenstockExec(plan)) : Catalyst.none();
        }
    }
}
