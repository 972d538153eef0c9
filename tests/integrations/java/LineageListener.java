package penstock.tests;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.util.QueryExecutionListener;
import scala.collection.Iterator;

/** Records what a lineage tool reads: the plans of queries, the paths of their inputs, and jobs outside of queries. */
public final class LineageListener extends SparkListener implements QueryExecutionListener {
    private final List<String> queries = Collections.synchronizedList(new ArrayList<>());
    private final AtomicInteger jobsWithoutQuery = new AtomicInteger();

    /** Returns a line for each event: its kind, the action, the plan without ids, and the paths of all inputs. */
    public List<String> queries() {
        return queries;
    }

    /** Returns the number of Spark jobs that belong to no SQL execution. */
    public int jobsWithoutQuery() {
        return jobsWithoutQuery.get();
    }

    @Override
    public void onSuccess(String action, QueryExecution query, long nanoseconds) {
        queries.add("success of " + action + ": " + lineage(query));
    }

    @Override
    public void onFailure(String action, QueryExecution query, Exception error) {
        queries.add("failure of " + action + ": " + lineage(query));
    }

    @Override
    public void onOtherEvent(SparkListenerEvent event) {
        if (event instanceof SparkListenerSQLExecutionEnd) {
            queries.add("end: " + lineage(((SparkListenerSQLExecutionEnd) event).qe()));
        }
    }

    @Override
    public void onJobStart(SparkListenerJobStart job) {
        if (job.properties().getProperty("spark.sql.execution.id") == null) {
            jobsWithoutQuery.incrementAndGet();
        }
    }

    private static String lineage(QueryExecution query) {
        List<String> inputs = new ArrayList<>();
        Iterator<LogicalPlan> leaves = query.optimizedPlan().collectLeaves().iterator();
        while (leaves.hasNext()) {
            LogicalPlan leaf = leaves.next();
            if (leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation) {
                inputs.add(((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location().rootPaths().toString());
            }
        }
        return query.analyzed().canonicalized() + "\n" + query.optimizedPlan().canonicalized() + "\n" + inputs;
    }
}
