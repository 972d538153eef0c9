from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.connectors import ParallelismInferenceContext
from penstock.connectors.core.coordinator import NOT_INFERRED, SourceCoordinator
from penstock.errors import GraphError, SourceTimeoutError

CONTEXT = ParallelismInferenceContext(10, 1 << 20)


class Inferring:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.contexts: list[Any] = []

    def infer_parallelism(self, context: Any) -> Any:
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def executor() -> Iterator[Any]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("answer", "expected", "problem"),
    [
        (7, 7, None),
        (700, 700, None),
        (0, NOT_INFERRED, "returned 0"),
        (-3, NOT_INFERRED, "returned -3"),
        (OSError("no route"), NOT_INFERRED, "no route"),
    ],
)
def test_invalid_answers_and_errors_count_as_no_answer(
    executor: Any, answer: Any, expected: Any, problem: str | None
) -> None:
    coordinator = SourceCoordinator("s", Inferring(answer))
    assert coordinator.infer_parallelism(CONTEXT, executor).result() == expected
    assert problem is None if coordinator.problem is None else problem in coordinator.problem


def test_a_source_that_times_out_is_an_error(executor: Any) -> None:
    silent = SourceCoordinator("s", Inferring(SourceTimeoutError.of("s", "asking s for its parallelism", 2)))
    with pytest.raises(SourceTimeoutError, match="s has not answered for 2 s"):
        silent.infer_parallelism(CONTEXT, executor).result()


def test_a_source_infers_its_parallelism_once(executor: Any) -> None:
    source = Inferring(3)
    coordinator = SourceCoordinator("s", source)
    assert coordinator.infer_parallelism(CONTEXT, executor) is coordinator.infer_parallelism(CONTEXT, executor)
    coordinator.infer_parallelism(CONTEXT, executor).result()
    assert source.contexts == [CONTEXT]


def test_a_source_without_inference_has_no_answer(executor: Any) -> None:
    assert SourceCoordinator("s", object()).infer_parallelism(CONTEXT, executor).result() == NOT_INFERRED


def test_a_coordinator_exists_before_its_parallelism() -> None:
    coordinator = SourceCoordinator("s", Inferring(3))
    with pytest.raises(GraphError, match="not initialized"):
        _ = coordinator.parallelism
    coordinator.initialize(4)
    assert coordinator.parallelism == 4
    with pytest.raises(GraphError, match="already"):
        coordinator.initialize(5)
