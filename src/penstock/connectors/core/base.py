"""The interfaces of sources and sinks (FLIP-146, FLIP-379)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.base.location import current_user_line
from penstock.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.core.predicates import Predicate


class DynamicFilteringInfo:
    """Marks facts about the rows that a job needs from a source, such as a `KeyFilter`.

    A source checks the class of the facts, and ignores classes that it does not support.
    """


@dataclass(frozen=True)
class KeyFilter(DynamicFilteringInfo):
    """The restriction of a source to rows whose keys, in `columns`, occur on the finished side of a join.

    `build_predicate` is called on first use of `predicate`: few sources use this SQL text, which is long for many keys.
    """

    columns: tuple[str, ...]
    build_predicate: Callable[[], str] = field(repr=False)

    @cached_property
    def predicate(self) -> str:
        """A condition in Spark SQL that is true for every row the job needs, and may also be true for other rows."""
        return self.build_predicate()


@dataclass(frozen=True, slots=True)
class ParallelismInferenceContext:
    """Input of a source's parallelism inference.

    Parameters
    ----------
    parallelism_inference_upper_bound
        The maximum number of tasks.
    data_volume_per_task
        The target bytes per task.
    dynamic_filtering_info
        Facts about the rows that the job needs; None if there are none.
    columns
        The columns that the job reads; None for all.
    predicates
        Conditions that hold for every row the job needs, dynamic filters included.
    """

    parallelism_inference_upper_bound: int
    data_volume_per_task: int
    dynamic_filtering_info: DynamicFilteringInfo | None = None
    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanContext:
    """Input of a source that builds its scan.

    Parameters
    ----------
    parallelism
        The decided number of tasks.
    data_volume_per_task
        The target bytes per task.
    columns
        The columns that the job reads; None for all.
    predicates
        Conditions that hold for every row the job needs. The source may skip rows that do not meet them, but need not.
    """

    parallelism: int
    data_volume_per_task: int
    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()


@runtime_checkable
class DynamicParallelismInference(Protocol):
    """A source that infers its parallelism while the job runs."""

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of tasks; 0 or less means that the source cannot infer it.

        Penstock calls this once, on the driver, in a separate thread, after all upstream vertices have finished. If
        this raises `SourceTimeoutError`, or does not return within ``sources.timeout``, the job fails. After any other
        exception, Penstock records the exception and uses the upper bound.
        """


@runtime_checkable
class ParallelismProvider(Protocol):
    """A connector that may set its parallelism when the query is planned (static inference)."""

    @property
    def parallelism(self) -> int | None:
        """The number of tasks; None if Penstock decides."""


class Source(ABC):
    """A source that `Environment.read` turns into a DataFrame.

    A source with `DynamicParallelismInference.infer_parallelism` infers its parallelism while the job runs. A source
    whose `parallelism` is not None has this fixed number of tasks.
    """

    @property
    def name(self) -> str:
        """The display name."""
        return type(self).__name__

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's rows as an ordinary, lazy DataFrame."""


@dataclass(frozen=True)
class SourceProvider:
    """A source whose `parallelism` is fixed when the query is planned; if it is None, Penstock decides."""

    source: Source
    parallelism: int | None = None


class DataFrameScanProvider(Source):
    """A source that builds its scan while the job runs, after its parallelism and dynamic filters are decided."""

    uses_predicates: ClassVar[bool] = True
    """Whether the source skips data that ``context.predicates`` exclude."""

    @abstractmethod
    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return a DataFrame of the needed rows: a scan of files, or up to ``context.parallelism`` partitions.

        Penstock splits the files of a scan among tasks. The DataFrame has at least the columns of ``context.columns``,
        with the same names and types as in the DataFrame of `read`.
        """


@runtime_checkable
class VerifiableSplits(Protocol):
    """A `connectors.core.scan.Scan` that can check that every row is in exactly one split, for ``execution.verify``."""

    def rows_not_read_once(self) -> int:
        """Return the number of rows that are in no split, or in several."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The sink options of a job; arguments of the sink itself override them.

    The fields are ``sink.target-file-size`` in bytes, ``sink.auto-compaction``, and the names of the policies in
    ``sink.partition-commit.policy.kind``.
    """

    target_file_size: int
    auto_compaction: bool = False
    partition_commit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of a target; those whose keys begin with ``sink.`` override the options of the job.

    `options` are those of the writer, or the OPTIONS of the table; `properties` are the TBLPROPERTIES of the table.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageReport:
    """The outcome of a `SinkStage`: `chosen` says what it did, and `reason` why, a lower-case clause without full stop.

    `tasks` is the number of Spark tasks that ran the step, or None if the driver ran it.
    """

    chosen: str
    reason: str
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class SinkParallelism:
    """The number of tasks that a sink recommends for its rows, at least 1, and the reason, a clause."""

    tasks: int
    reason: str


@dataclass(frozen=True)
class SinkStage:
    """A step of a sink after its rows are written, such as a compaction; not a stage of Spark.

    In the job's graph, it is a node after the sink. `run` is called once per job, in a separate thread: before the
    commit, or with `after_commit` after it. If `run` raises, the job fails, and its sinks are rolled back if possible.
    """

    name: str
    run: Callable[[SinkJob], StageReport]
    after_commit: bool = False


class SinkJob(ABC):
    """The write of a job into a sink: either all rows become visible, or none."""

    calls_python: bool = True
    """Whether `write` may pass rows to Python functions of the sink, or run further queries. If not, only functions of
    the user's query get batches of rows. Penstock then turns off Spark's measuring of the bytes of each batch, which is
    slow, if no batch of these functions can reach Spark's byte limit (``arrow.maxBytesPerBatch``)."""

    def check(self, schema: StructType) -> None:  # noqa: B027
        """Raise `SinkError` for rows that the target cannot hold, before any vertex runs. The default accepts all."""

    @property
    def nothing_to_write(self) -> str | None:
        """The reason why the target needs no rows, a clause; `write` is then not called. None if it needs rows."""
        return None

    @property
    def target_folder(self) -> str | None:
        """The resolved path of the folder that the job writes to; None if the target is not a folder."""
        return None

    @property
    def creates_target(self) -> bool:
        """Whether the job creates the whole target, so that no other sink of the job can append to it."""
        return False

    @abstractmethod
    def write(self, df: DataFrame) -> None:
        """Write the rows so that no reader sees them yet. Called in a separate thread; again only after `restart`."""

    def sample_size(self, df: DataFrame) -> int:  # noqa: ARG002
        """Write sample rows as `write` would, remove them, and return their size in bytes; 0 if it cannot be measured.

        Called before `write`, and only for sinks with a `Sink.file_size`.
        """
        return 0

    def write_first(self, df: DataFrame, rows: int | None) -> SinkParallelism | None:  # noqa: ARG002
        """Write some rows of `df`, and return the recommended number of tasks; None for no recommendation.

        Called before `write`, and only for sinks with `Sink.measures_tasks`. `df` has a part of the rows. `write` gets
        all rows, and must skip or replace these. `rows` is the number of all rows, None if unknown.
        """
        return None

    def restart(self) -> bool:
        """Remove the rows of a failed `write`, and return whether `write` can be called again.

        Only needed after a failed barrier stage at the end of a query: Spark itself retries all other failed stages.
        """
        return False

    def prepare(self) -> Prepared | None:
        """Make the written rows durable, and return a record with which any process can commit or roll them back.

        Called after all vertices of the job have finished and before any sink commits. If the commit has a journal and
        the record has `exclusive_paths` or `extended_folders`, `prepare` is called again once the journal blocks other
        commits, until the record no longer changes and so fits the current target. The default returns None, for sinks
        that only this process can commit: Penstock then calls `commit`, and cannot recover from a crash during it.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The secrets that the commit needs and journals do not store, by `Prepared.address`; see `Access.secrets`."""
        return {}

    def commit(self) -> None:  # noqa: B027
        """Make all rows visible. Called only if `prepare` returned None."""

    @abstractmethod
    def abort(self) -> None:
        """Remove the rows of a failed job, even after `commit`. Not called if `prepare` has returned a record."""

    def refresh(self) -> None:  # noqa: B027
        """Invalidate caches of the target in this session. Called after a commit and after a rollback."""


def already_written(token: str) -> str:
    """Return the reason, a clause, why a job writes nothing: an earlier run has written the rows of `token`."""
    return f"the target already has the rows of token {token!r}"


class NothingToWrite(SinkJob):
    """A sink job that writes nothing, so that the rows are not computed; `reason` is a clause."""

    nothing_to_write: str = ""

    def __init__(self, reason: str) -> None:
        self.nothing_to_write = reason

    def write(self, df: DataFrame) -> None:
        """Write nothing."""

    def restart(self) -> bool:
        """Return True: nothing was written."""
        return True

    def abort(self) -> None:
        """Do nothing: this job has written nothing."""


class Sink(ABC):
    """A target of `Environment.write`."""

    parallelism: int | None = None  # None: Penstock decides
    materialised: ClassVar[bool] = False
    """Whether an exchange stores the rows in front of the sink, so that the sink can read them several times."""
    measures_tasks: ClassVar[bool] = False
    """Whether the first rows decide the number of tasks, see `SinkJob.write_first`; requires `materialised`."""
    restartable: ClassVar[bool] = False
    """Whether the jobs of the sink support `SinkJob.restart`."""

    @property
    def name(self) -> str:
        """The display name."""
        return type(self).__name__

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns: rows with different values go to different files."""
        return ()

    @property
    def location(self) -> str | None:
        """The target folder (normalized by `commit.location_of`) or table; None if unknown.

        A job with two sinks for the same location is rejected, unless `adds` is true for both.
        """
        return None

    @property
    def adds(self) -> bool:
        """Whether the sink appends: rows at the location stay, and other sinks may append to it as well."""
        return False

    def target_options(self, spark: SparkSession) -> TargetOptions:  # noqa: ARG002
        """Return the options that are set for this target alone."""
        return TargetOptions()

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:  # noqa: ARG002
        """Return the steps after the rows are written, in order."""
        return ()

    def file_size(self, options: SinkOptions) -> int | None:  # noqa: ARG002
        """Return the target size of a file in bytes; None if the upstream tasks write the files themselves.

        With a size and without a parallelism, Penstock adds an exchange by `partition_columns` before the sink, and
        chooses its number of partitions so that files have about this size.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The secrets that a commit needs and journals do not store, by `Prepared.address`; see `Access.secrets`."""
        return {}

    def recover(self, access: Access) -> None:  # noqa: B027
        """Complete or roll back the interrupted commit of a dead process at the target. Called before `open`."""

    @abstractmethod
    def open(self, spark: SparkSession) -> SinkJob:
        """Check the target and prepare the write, before any vertex runs. Raise `SinkError` if the job cannot write."""


class DataFrameSinkProvider(ABC):
    """A target that adds its own operators in front of its sinks.

    These operators become vertices of the job like the user's own (FLIP-146).
    """

    @property
    def name(self) -> str:
        """The display name."""
        return type(self).__name__

    @abstractmethod
    def consume_data_frame(self, df: DataFrame) -> Sequence[tuple[DataFrame, Sink]]:
        """Return the DataFrames derived from `df` (at least 1), each with its sink.

        Their common subplan runs once, and all sinks commit together.
        """


def require_positive(value: object, subject: str) -> int:
    """Return `value` if it is an integer of at least 1; else raise `SourceError` about `subject`, such as a table."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None or number < 1:
        error = SourceError.bad_parallelism(value, subject)
        error.set_line(current_user_line())
        raise error
    return number


def check_positive(subject: str, *values: object) -> None:
    """Raise `SourceError` about `subject` unless each value is None (not set), or an integer of at least 1."""
    for value in values:
        if value is not None:
            require_positive(value, subject)
