"""Parallelism of sources: set by the user, else by static inference, dynamic inference or default (FLIP-146, 379)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from penstock.base.units import show_count
from penstock.config.options import DEFAULT_SOURCE_PARALLELISM, MAX_PARALLELISM, PARALLELISM_DEFAULT, SCAN_INFER_MAX


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The user's options for the parallelism of a source.

    Fields are ``scan.parallelism``, ``scan.infer-parallelism.enabled`` and ``scan.infer-parallelism.max``; `kind_max`
    also limits inference for a kind of source, as ``table.exec.hive.infer-source-parallelism.max`` does for Hive.
    """

    parallelism: int | None = None
    infer: bool = True
    infer_max: int | None = None
    kind_max: int | None = None


@dataclass(frozen=True, slots=True)
class SourceBounds:
    """The bounds on the parallelism of the sources of a vertex; those of unset options are None.

    `job` bounds all vertices; for sources, `sources` (``default-source-parallelism``) replaces it. `step` is the user's
    maximum for this vertex. `vertex` is `step`, or ``max-parallelism`` if `step` is None; it applies in addition to
    `sources`. `parallelism_default` (``parallelism.default``) is the parallelism of a source whose inference is off. It
    is not a bound, except as the value of `job` if no other option sets `job` (FLIP-379). `job_from` and `vertex_from`
    name the options that set `job` and `vertex`.
    """

    job: int
    sources: int | None = None
    vertex: int | None = None
    parallelism_default: int | None = None
    job_from: str = "Penstock's default"
    vertex_from: str = MAX_PARALLELISM.key
    step: int | None = None

    @property
    def upper(self) -> tuple[int, str]:
        """The upper bound, which is the parallelism of a source that cannot infer any, and the option that sets it."""
        upper = (self.job, self.job_from) if self.sources is None else (self.sources, DEFAULT_SOURCE_PARALLELISM.key)
        return upper if self.vertex is None else min(upper, (self.vertex, self.vertex_from), key=itemgetter(0))

    def inference_bound(self, options: ScanOptions) -> int:
        """Return the upper bound for a source's inference; the source option `infer_max` replaces `job` if set."""
        return self._smallest_bound(options)[0]

    def cap_inferred(self, number: int, options: ScanOptions) -> tuple[int, str]:
        """Return an inferred parallelism capped by the inference bound, and the exceeded bound as text, empty if none.

        Flink limits a source that ignores its bound only by the maximum of the vertex. Here, the bound holds for all
        sources: users set it to limit how many tasks read at the same time.
        """
        bound, description = self._smallest_bound(options)
        return (number, "") if number <= bound else (bound, description)

    def _smallest_bound(self, options: ScanOptions) -> tuple[int, str]:
        """Return the smallest applicable bound, and its description."""
        bounds = [
            (options.infer_max, f"{SCAN_INFER_MAX.key} is {options.infer_max}"),
            (options.kind_max, f"the maximum for this kind of source is {options.kind_max}"),
            (self.vertex, f"this step's maximum is {self.vertex} ({self.vertex_from})"),
            (self.sources, f"the maximum for sources is {self.sources} ({DEFAULT_SOURCE_PARALLELISM.key})"),
        ]
        if options.infer_max is None and self.sources is None:
            bounds.append((self.job, f"the job's maximum is {self.job} ({self.job_from})"))
        return min(((bound, text) for bound, text in bounds if bound is not None), key=itemgetter(0))


def infers_parallelism(options: ScanOptions, static: int | None) -> bool:
    """Whether a source infers its parallelism while the job runs; `static` is the parallelism set by the connector."""
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
    number, bound_text = bounds.cap_inferred(inferred, options)
    reason = f"the source asks for {show_count(inferred, 'task')}"
    return number, f"{reason}, but {bound_text}" if bound_text else reason


ROWS_PER_TASK = 1000
"""The minimum rows of each task of a scan with a row limit, as in Flink's Hive connector."""


def limit_parallelism(parallelism: int, limit: int | None) -> int:
    """Return a parallelism reduced for a row limit, as ``HiveParallelismInference.limit`` of Flink does (FLIP-146)."""
    return parallelism if limit is None else max(1, min(parallelism, limit // ROWS_PER_TASK))
