"""How many tasks a source gets: user-defined > static inference > dynamic inference > default (FLIP-146, FLIP-379)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from penstock.config.options import (
    DEFAULT_SOURCE_PARALLELISM,
    MAX_PARALLELISM,
    PARALLELISM_DEFAULT,
    SCAN_INFER_MAX,
)
from penstock.units import show_count


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
    kind_max
        What bounds the inference of this kind of source besides, as
        ``table.exec.hive.infer-source-parallelism.max`` does.
    """

    parallelism: int | None = None
    infer: bool = True
    infer_max: int | None = None
    kind_max: int | None = None


@dataclass(frozen=True, slots=True)
class SourceBounds:
    """What bounds the sources of a vertex.

    Parameters
    ----------
    job
        The bound of all vertices; always a number, if only Penstock's default.
    default
        ``default-source-parallelism``, which replaces the bound of the job for sources; or None.
    vertex
        The user's maximum for this vertex, else ``max-parallelism``; None if neither is set. It bounds `default` too.
    everywhere
        ``parallelism.default``, or None: the parallelism of a source that must not infer. It bounds an answer only if
        it is the bound of the job (FLIP-379).
    job_from, vertex_from
        What sets the bounds of the job and of the vertex, in words.
    step
        The user's maximum for this vertex, or None.
    """

    job: int
    default: int | None = None
    vertex: int | None = None
    everywhere: int | None = None
    job_from: str = "Penstock's default"
    vertex_from: str = MAX_PARALLELISM.key
    step: int | None = None

    @property
    def upper(self) -> tuple[int, str]:
        """The parallelism of a source that gives no number, and what sets it."""
        default = (self.job, self.job_from) if self.default is None else (self.default, DEFAULT_SOURCE_PARALLELISM.key)
        return default if self.vertex is None else min(default, (self.vertex, self.vertex_from), key=itemgetter(0))

    def asked(self, options: ScanOptions) -> int:
        """Return the bound that a source is asked with; its own maximum stands in for the job's."""
        return self._least(options)[0]

    def inferred(self, number: int, options: ScanOptions) -> tuple[int, str]:
        """Return a source's answer within the bound it is asked with, and the bound in words if it is exceeded.

        Flink limits a source that ignores its bound by the maximum of the vertex only. Here, the bound holds for all
        sources: it is what the user sets to limit how many tasks read at the same time.
        """
        bound, name, origin = self._least(options)
        if number <= bound:
            return number, ""
        return bound, f"{name} is {bound} ({origin})" if origin else f"{name} is {bound}"

    def _least(self, options: ScanOptions) -> tuple[int, str, str]:
        """Return the smallest of the bounds that apply, what it is, and what sets it (empty if that is the same)."""
        bounds = [
            (options.infer_max, SCAN_INFER_MAX.key, ""),
            (options.kind_max, "the maximum for this kind of source", ""),
            (self.vertex, "this step's maximum", self.vertex_from),
            (self.default, "the maximum for sources", DEFAULT_SOURCE_PARALLELISM.key),
        ]
        if options.infer_max is None and self.default is None:
            bounds.append((self.job, "the job's maximum", self.job_from))
        return min(((bound, name, origin) for bound, name, origin in bounds if bound is not None), key=itemgetter(0))


def is_asked(options: ScanOptions, static: int | None) -> bool:
    """Whether it is left to a source how many tasks it gets."""
    return options.infer and options.parallelism is None and static is None


def choose_scan_parallelism(
    options: ScanOptions, static: int | None, inferred: int, bounds: SourceBounds
) -> tuple[int, str]:
    """Return a source's parallelism and the reason, half a sentence.

    Parameters
    ----------
    options
        What the user said.
    static
        What the connector fixed when the plan was made, or None.
    inferred
        What the source answered, or -1 for no answer.
    bounds
        What bounds it.
    """
    if options.parallelism is not None:
        return options.parallelism, f"parallelism is set to {options.parallelism}"
    if static is not None:
        return static, f"fixed by the connector at {static}"
    if not options.infer:
        number, origin = (bounds.everywhere, PARALLELISM_DEFAULT.key) if bounds.everywhere else bounds.upper
        if bounds.step is not None and bounds.step < number:
            return bounds.step, f"inference is off, and this step's maximum is {bounds.step}"
        return number, f"inference is off, so the default of {number} applies ({origin})"
    if inferred <= 0:
        number, origin = bounds.upper
        return number, f"the source gave no number, so the upper bound of {number} applies ({origin})"
    number, by = bounds.inferred(inferred, options)
    asked = f"the source asks for {show_count(inferred, 'task')}"
    return number, f"{asked}, but {by}" if by else asked


ROWS_PER_TASK = 1000
"""What a task of a limited scan is worth starting for, as Flink's Hive connector has it."""


def limited(parallelism: int, limit: int | None) -> int:
    """Return the parallelism that static inference leaves to a scan of which no more rows than a limit are wanted.

    Source: ``HiveParallelismInference.limit`` of Flink (FLIP-146).
    """
    return parallelism if limit is None else max(1, min(parallelism, limit // ROWS_PER_TASK))
