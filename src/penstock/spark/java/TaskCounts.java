package penstock;

import java.util.ArrayList;
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

/** Tells how far Spark jobs have come; see `task_counts`. */
public final class TaskCounts {
    /** Returns the stages that have begun of the jobs with each tag, and what they have read so far. */
    public Object of(SparkContext context, List<?> tags) throws JsonProcessingException {
        AppStatusStore store = context.statusStore();
        Map<String, Set<Object>> stages = new HashMap<>();
        for (Object found : Catalyst.each(store.jobsList(null))) {
            JobData job = (JobData) found;
            for (Object tag : Catalyst.each(job.jobTags().toSeq())) {
                if (tags.contains(tag)) {
                    Set<Object> ofTag = stages.get(tag);
                    if (ofTag == null) {
                        ofTag = new HashSet<>();
                        stages.put((String) tag, ofTag);
                    }
                    for (Object stage : Catalyst.each(job.stageIds().toSeq())) {
                        ofTag.add(stage);
                    }
                }
            }
        }
        Map<String, Object> counts = new HashMap<>();
        for (Map.Entry<String, Set<Object>> entry : stages.entrySet()) {
            counts.put(entry.getKey(), counts(store, entry.getValue()));
        }
        return Answer.of(counts);
    }

    private static List<Object> counts(AppStatusStore store, Set<Object> stages) {
        long done = 0;
        long total = 0;
        long bytes = 0;
        long rows = 0;
        for (Object id : stages) {
            StageData stage;
            try {
                stage = store.lastStageAttempt(((Integer) id).intValue());
            } catch (NoSuchElementException forgotten) {
                continue;
            }
            if (stage.submissionTime().isDefined()) { // else it is skipped, or its turn has not come
                done += stage.numCompleteTasks();
                total += stage.numTasks();
                bytes += stage.inputBytes() + stage.shuffleReadBytes();
                rows += stage.inputRecords() + stage.shuffleReadRecords();
            }
        }
        List<Object> counts = new ArrayList<>();
        counts.add(done);
        counts.add(total);
        counts.add(bytes);
        counts.add(rows);
        return counts;
    }
}
