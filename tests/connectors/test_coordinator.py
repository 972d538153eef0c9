from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.connectors import ParallelismInferenceContext
from penstock.connectors.coordinator import NO_ANSWER, SourceCoordinator
from penstock.errors import GraphError, SourceTimeoutError

CONTEXT = ParallelismInferenceContext(10, 1 << 20)


class Inferring:
    def __init__(self, answer):
        self.answer = answer
        self.asked: list[Any] = []

    def infer_parallelism(self, context):
        self.asked.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def executor():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("answer", "expected", "problem"),
    [
        (7, 7, None),
        (700, 700, None),
        (0, NO_ANSWER, "gave 0"),
        (-3, NO_ANSWER, "gave -3"),
        (OSError("no route"), NO_ANSWER, "no route"),
    ],
)
def test_answers(executor, answer, expected, problem):
    coordinator = SourceCoordinator("s", Inferring(answer))
    assert coordinator.infer_parallelism(CONTEXT, executor).result() == expected
    assert problem is None if coordinator.problem is None else problem in coordinator.problem


def test_a_source_that_is_silent_is_not_passed_over(executor):
    silent = SourceCoordinator("s", Inferring(SourceTimeoutError.of("s", "asking s for its parallelism", 2)))
    with pytest.raises(SourceTimeoutError, match="s has not answered for 2 s"):
        silent.infer_parallelism(CONTEXT, executor).result()


def test_a_source_is_asked_once(executor):
    source = Inferring(3)
    coordinator = SourceCoordinator("s", source)
    assert coordinator.infer_parallelism(CONTEXT, executor) is coordinator.infer_parallelism(CONTEXT, executor)
    coordinator.infer_parallelism(CONTEXT, executor).result()
    assert source.asked == [CONTEXT]


def test_a_source_that_does_not_infer(executor):
    assert SourceCoordinator("s", object()).infer_parallelism(CONTEXT, executor).result() == NO_ANSWER


def test_it_exists_before_its_parallelism_does():
    coordinator = SourceCoordinator("s", Inferring(3))
    with pytest.raises(GraphError, match="not initialised"):
        _ = coordinator.parallelism
    coordinator.initialize(4)
    assert coordinator.parallelism == 4
    with pytest.raises(GraphError, match="already"):
        coordinator.initialize(5)
