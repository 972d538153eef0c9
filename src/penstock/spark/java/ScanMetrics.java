package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;

import scala.Option;

/** Tells what the scans of a plan have read; see `exchange.scanned_rows`. */
public final class ScanMetrics {
    /** Returns the columns of each scan of a plan that has run, by their ids, and the rows that it gave. */
    public Object rows(SparkPlan plan) throws JsonProcessingException {
        List<Object> found = new ArrayList<>();
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            SparkPlan scan = (SparkPlan) leaf;
            Option<?> rows = scan.metrics().get("numOutputRows");
            if (rows.isDefined()) {
                List<Object> columns = new ArrayList<>();
                for (Object column : Catalyst.each(scan.output())) {
                    columns.add(Catalyst.id((Attribute) column));
                }
                Map<String, Object> facts = new HashMap<>();
                facts.put("columns", columns);
                facts.put("rows", ((AccumulatorV2<?, ?>) rows.get()).value());
                found.add(facts);
            }
        }
        return Answer.of(found);
    }
}
