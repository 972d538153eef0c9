package penstock;

import java.util.HashSet;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.concurrent.TimeoutException;

import org.apache.spark.SparkContext;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.StageData;

/** Tells what the tasks of a job group have read; see `jobs.bytes_read`. */
public final class StageMetrics {
    /**
     * Returns the bytes that the tasks of jobs with a tag have read of sources; -1 if that is not known.
     *
     * @param patience how many milliseconds to wait until Spark has counted tasks that have ended
     */
    public long bytesRead(SparkContext context, String tag, long patience) {
        try {
            context.listenerBus().waitUntilEmpty(patience);
            AppStatusStore store = context.statusStore();
            Set<Object> seen = new HashSet<>();
            long bytes = 0;
            for (int job : context.statusTracker().getJobIdsForTag(tag)) {
                for (Object stage : Catalyst.each(store.job(job).stageIds().toSeq())) {
                    if (seen.add(stage)) {
                        StageData data = store.lastStageAttempt((Integer) stage);
                        if (data.inputBytes() == 0 && data.inputRecords() > 0) {
                            return -1; // a source that does not count its bytes
                        }
                        bytes += data.inputBytes();
                    }
                }
            }
            return bytes;
        } catch (TimeoutException late) {
            return -1;
        } catch (NoSuchElementException gone) {
            return -1;
        }
    }
}
