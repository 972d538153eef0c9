"""Parallelism of sources: user-defined > static inference > dynamic inference > default (FLIP-146, FLIP-379)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from penstock.base.units import show_count
from penstock.config.options import DEFAULT_SOURCE_PARALLELISM, MAX_PARALLELISM, PARALLELISM_DEFAULT, SCAN_INFER_MAX


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The user's options for the parallelism of a source: ``scan.parallelism`` and ``scan.infer-parallelism``.

    `kind_max` is an additional maximum for inference of this kind of source, such as
    ``table.exec.hive.infer-source-parallelism.max``.
    """

    parallelism: int | None = None
    infer: bool = True
    infer_max: int | None = None
    kind_max: int | None = None


@dataclass(frozen=True, slots=True)
class SourceBounds:
    """The bounds on the parallelism of the sources of a vertex; those of unset options are None.

    `job` is the bound of all vertices; for sources, `default` (``default-source-parallelism``) replaces it. `vertex` is
    the user's maximum for this vertex, else ``max-parallelism``, and bounds `default` too; `step` is the former alone.
    `parallelism_default` (``parallelism.default``) is the parallelism of a source whose inference is off. It bounds an
    inferred parallelism only if it is the bound of the job (FLIP-379). `job_from` and `vertex_from` are the options
    that set the bounds.
    """

    job: int
    default: int | None = None
    vertex: int | None = None
    parallelism_default: int | None = None
    job_from: str = "Penstock's default"
    vertex_from: str = MAX_PARALLELISM.key
    step: int | None = None

    @property
    def upper(self) -> tuple[int, str]:
        """The parallelism of a source without inferred parallelism, and the option that sets it."""
        default = (self.job, self.job_from) if self.default is None else (self.default, DEFAULT_SOURCE_PARALLELISM.key)
        return default if self.vertex is None else min(default, (self.vertex, self.vertex_from), key=itemgetter(0))

    def inference_bound(self, options: ScanOptions) -> int:
        """Return the upper bound for a source's inference; a maximum of the source itself replaces that of the job."""
        return self._least(options)[0]

    def inferred(self, number: int, options: ScanOptions) -> tuple[int, str]:
        """Return the inferred parallelism capped by the inference bound, and a description of the bound if it applied.

        Flink limits a source that ignores its bound only by the maximum of the vertex. Here, the bound holds for all
        sources: users set it to limit how many tasks read at the same time.
        """
        bound, description = self._least(options)
        return (number, "") if number <= bound else (bound, description)

    def _least(self, options: ScanOptions) -> tuple[int, str]:
        """Return the smallest applicable bound, and its description."""
        bounds = [
            (options.infer_max, f"{SCAN_INFER_MAX.key} is {options.infer_max}"),
            (options.kind_max, f"the maximum for this kind of source is {options.kind_max}"),
            (self.vertex, f"this step's maximum is {self.vertex} ({self.vertex_from})"),
            (self.default, f"the maximum for sources is {self.default} ({DEFAULT_SOURCE_PARALLELISM.key})"),
        ]
        if options.infer_max is None and self.default is None:
            bounds.append((self.job, f"the job's maximum is {self.job} ({self.job_from})"))
        return min(((bound, text) for bound, text in bounds if bound is not None), key=itemgetter(0))


def infers_parallelism(options: ScanOptions, static: int | None) -> bool:
    """Return whether a source infers its parallelism while the job runs."""
    return options.infer and options.parallelism is None and static is None


def choose_scan_parallelism(
    options: ScanOptions, static: int | None, inferred: int, bounds: SourceBounds
) -> tuple[int, str]:
    """Return a source's parallelism and the reason, a clause.

    `static` is the parallelism that the connector fixed at planning time, or None. `inferred` is the parallelism that
    the source inferred, -1 if it did not infer any.
    """
    if options.parallelism is not None:
        return options.parallelism, f"parallelism is set to {options.parallelism}"
    if static is not None:
        return static, f"fixed by the connector at {static}"
    if not options.infer:
        default = bounds.parallelism_default
        number, origin = (default, PARALLELISM_DEFAULT.key) if default else bounds.upper
        if bounds.step is not None and bounds.step < number:
            return bounds.step, f"inference is off, and this step's maximum is {bounds.step}"
        return number, f"inference is off, so the default of {number} applies ({origin})"
    if inferred <= 0:
        number, origin = bounds.upper
        return number, f"the source gave no number, so the upper bound of {number} applies ({origin})"
    number, by = bounds.inferred(inferred, options)
    reason = f"the source asks for {show_count(inferred, 'task')}"
    return number, f"{reason}, but {by}" if by else reason


ROWS_PER_TASK = 1000
"""The rows for which a task of a limited scan is worth starting, as in Flink's Hive connector."""


def limited(parallelism: int, limit: int | None) -> int:
    """Return a parallelism reduced for a row limit, as ``HiveParallelismInference.limit`` of Flink does (FLIP-146)."""
    return parallelism if limit is None else max(1, min(parallelism, limit // ROWS_PER_TASK))
