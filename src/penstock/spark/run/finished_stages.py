"""The work of finished stages, from Spark's status store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_EVENT_SECONDS = 10
"""The longest wait for events of tasks that have ended but are not in the status store yet."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """Completed tasks of finished stages, and the bytes that they wrote to shuffles."""

    tasks: int
    shuffled_bytes: int
    last_stage: int
    """The largest id of a stage of the application; -1 if there is no stage."""


def work_after(bridge: Bridge, stage_id: int) -> StageWork:
    """Return the work of all finished stages of the application whose ids are above `stage_id`."""
    context = bridge.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(_EVENT_SECONDS * 1000)
    no_quantiles = bridge.new_array("double", [])
    any_status = bridge.find("java.util.ArrayList")()
    stages = context.statusStore().stageList(any_status, False, False, no_quantiles, any_status)
    tasks = shuffled_bytes = 0
    last_stage = stage_id
    for index in range(stages.size()):  # the newest stages come first
        stage = stages.apply(index)
        if stage.stageId() <= stage_id:
            break
        tasks += stage.numCompleteTasks()
        shuffled_bytes += stage.shuffleWriteBytes()
        last_stage = max(last_stage, stage.stageId())
    return StageWork(tasks, shuffled_bytes, last_stage)
