"""Copy the logs of a few days with the connector: on plain Spark, and with Penstock."""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

from gzip_logs import GzipLogs, GzipLogSink

from penstock import Environment


def main() -> None:
    env = Environment(progress=False)
    with TemporaryDirectory() as folder:
        for day in range(1, 31):
            logs = Path(folder, "logs", f"day=2026-11-{day:02}")
            logs.mkdir(parents=True)
            lines = "".join(f"10.0.0.{line % 256} 200 {1000 + line}\n" for line in range(1000))
            (logs / "0.gz").write_bytes(gzip.compress(lines.encode()))

        last_days = env.read(GzipLogs(f"{folder}/logs")).where("day > '2026-11-26'")
        env.spark.sparkContext.setJobGroup("plain", "count on plain Spark")
        rows = last_days.count()
        tracker = env.spark.sparkContext.statusTracker()
        stages = [stage for job in tracker.getJobIdsForGroup("plain") for stage in tracker.getJobInfo(job).stageIds]
        tasks = max(tracker.getStageInfo(stage).numTasks for stage in stages)
        print(f"plain Spark: {tasks} tasks read {rows} rows")

        env.write(last_days, GzipLogSink(f"{folder}/copy"))
        source = env.execute("copy the last days").vertices[0]
        rows = env.count(env.read(GzipLogs(f"{folder}/copy")))
        days = sorted(path.name for path in Path(folder, "copy").glob("day=*"))
        print(f"Penstock:    {source.tasks} tasks read {rows} rows and wrote {days[0]} to {days[-1]}")
    env.spark.stop()


if __name__ == "__main__":
    main()
