package penstock.exchange;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.SparkContext;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/** The progress of Spark jobs; see `task_counts`. */
public final class TaskCounts {
    /** Returns for each tag's jobs, over the started stages: finished tasks, all tasks, bytes read and rows read. */
    public Object of(SparkContext context, List<?> tags) throws JsonProcessingException {
        AppStatusStore store = context.statusStore();
        List<?> jobs = Catalyst.each(store.jobsList(null));
        Map<String, Object> counts = new HashMap<>();
        for (Object tag : tags) {
            Set<Object> stages = new HashSet<>();
            for (Object element : jobs) {
                JobData job = (JobData) element;
                if (job.jobTags().contains(tag)) {
                    stages.addAll(Catalyst.each(job.stageIds().toSeq()));
                }
            }
            if (!stages.isEmpty()) {
                counts.put((String) tag, counts(store, stages));
            }
        }
        return Answer.of(counts);
    }

    private static List<Object> counts(AppStatusStore store, Set<Object> stages) {
        long finishedTasks = 0;
        long allTasks = 0;
        long bytes = 0;
        long rows = 0;
        for (Object id : stages) {
            StageData stage;
            try {
                stage = store.lastStageAttempt(((Integer) id).intValue());
            } catch (NoSuchElementException removed) { // the store retains a limited number of stages
                continue;
            }
            if (stage.submissionTime().isDefined()) { // otherwise the stage is skipped or has not started
                finishedTasks += stage.numCompleteTasks();
                allTasks += stage.numTasks();
                bytes += stage.inputBytes() + stage.shuffleReadBytes();
                rows += stage.inputRecords() + stage.shuffleReadRecords();
            }
        }
        return Arrays.<Object>asList(finishedTasks, allTasks, bytes, rows);
    }
}
