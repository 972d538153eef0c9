"""How many tasks a source gets: user-defined > static inference > dynamic inference > default (FLIP-146, FLIP-379)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.stream_graph import UNDECIDED


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What the user said about the parallelism of one source.

    Parameters
    ----------
    parallelism
        ``scan.parallelism``.
    infer
        ``scan.infer-parallelism.enabled``.
    infer_max
        ``scan.infer-parallelism.max``.
    """

    parallelism: int | None = None
    infer: bool = True
    infer_max: int | None = None


def source_upper_bound(default_source: int | None, global_max: int, vertex_max: int = UNDECIDED) -> int:
    """Return the most tasks a source may infer."""
    bound = default_source or global_max
    return bound if vertex_max == UNDECIDED else min(bound, vertex_max)


def choose_scan_parallelism(
    options: ScanOptions, static: int | None, inferred: int, upper_bound: int, global_parallelism: int | None
) -> tuple[int, str]:
    """Return a source's parallelism and the reason, half a sentence.

    Parameters
    ----------
    options
        What the user said.
    static
        What the connector fixed when the plan was made, or None.
    inferred
        What the source answered, or -1 for no answer. A source that ignores the bound is not clipped to it here.
    upper_bound
        See `source_upper_bound`; what a source without an answer gets.
    global_parallelism
        ``parallelism.default``, or None.
    """
    if options.parallelism is not None:
        return options.parallelism, f"scan.parallelism is {options.parallelism}"
    if static is not None:
        return static, f"fixed by the connector at {static}"
    if not options.infer:
        number = global_parallelism or upper_bound
        return number, f"inference is off, so the global parallelism {number}"
    if inferred <= 0:
        return upper_bound, f"no answer, so the upper bound {upper_bound}"
    bound, name = (
        (options.infer_max, "scan.infer-parallelism.max")
        if options.infer_max is not None
        else (global_parallelism, "the global parallelism")
    )
    if bound is not None and bound < inferred:
        return bound, f"{inferred} inferred, {name} is {bound}"
    return inferred, f"{inferred} inferred"


ROWS_PER_TASK = 1000
"""What a task of a limited scan is worth starting for, as Flink's Hive connector has it."""


def limited(parallelism: int, limit: int | None) -> int:
    """Return the parallelism that static inference leaves to a scan of which no more rows than a limit are wanted.

    Source: ``HiveParallelismInference.limit`` of Flink (FLIP-146).
    """
    return parallelism if limit is None else max(1, min(parallelism, limit // ROWS_PER_TASK))
