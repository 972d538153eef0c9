"""How many tasks a source gets: user-defined > static inference > dynamic inference > default (FLIP-146, FLIP-379)."""

from __future__ import annotations

from dataclasses import dataclass


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
        The bound of all vertices, be it only the one they have by default.
    default
        ``default-source-parallelism``, or None.
    vertex
        The vertex's maximum as far as somebody said it: the vertex's own or ``max-parallelism``; else None.
    everywhere
        ``parallelism.default``, or None.
    """

    job: int
    default: int | None = None
    vertex: int | None = None
    everywhere: int | None = None

    @property
    def upper(self) -> int:
        """What a source gets that has no answer."""
        return _least(self.default or self.job, self.vertex)

    def asked(self, options: ScanOptions) -> int:
        """Return the bound that a source is asked with; its own maximum stands in for the job's."""
        bound = self.default if options.infer_max is not None else self.default or self.job
        return _least(bound, options.infer_max, options.kind_max, self.vertex)

    def inferred(self, number: int, options: ScanOptions) -> tuple[int, str]:
        """Return what becomes of a source's answer, and by which bound if it is more than that; else an empty text.

        A source that ignores the bound it is asked with gets what it wants as far as the vertex may have it.
        """
        bounds = {
            "scan.infer-parallelism.max": options.infer_max,
            "the maximum for this kind of source": options.kind_max,
            "the vertex's maximum": self.vertex,
        }
        if options.infer_max is None:
            bounds |= {
                "the default parallelism": self.everywhere,
                "the job's maximum": max(self.job, self.default or 0),
            }
        name, bound = min(((n, one) for n, one in bounds.items() if one is not None), key=lambda one: one[1])
        return (number, "") if number <= bound else (bound, f"{name} is {bound}")


def _least(*bounds: int | None) -> int:
    return min(bound for bound in bounds if bound is not None)


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
        number = bounds.everywhere or bounds.upper
        return number, f"inference is off, so the default of {number} applies"
    if inferred <= 0:
        return bounds.upper, f"the source gave no number, so the upper bound of {bounds.upper} applies"
    number, by = bounds.inferred(inferred, options)
    return number, f"{inferred} inferred, but {by}" if by else f"{inferred} inferred"


ROWS_PER_TASK = 1000
"""What a task of a limited scan is worth starting for, as Flink's Hive connector has it."""


def limited(parallelism: int, limit: int | None) -> int:
    """Return the parallelism that static inference leaves to a scan of which no more rows than a limit are wanted.

    Source: ``HiveParallelismInference.limit`` of Flink (FLIP-146).
    """
    return parallelism if limit is None else max(1, min(parallelism, limit // ROWS_PER_TASK))
