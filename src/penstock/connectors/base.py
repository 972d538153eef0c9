"""The interfaces of sources and sinks (FLIP-146, FLIP-379)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.errors import SourceError
from penstock.location import callers_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.predicates import Predicate


class DynamicFilteringInfo(Protocol):
    """Facts from finished vertices about the rows of a source that a job needs; each source uses the kinds it knows."""


@dataclass(frozen=True)
class KeyFilter(DynamicFilteringInfo):
    """The job needs only the rows of a source whose keys are among those of a join's finished side.

    Parameters
    ----------
    columns
        The key columns of the source.
    spell
        Returns `predicate`, which is long with many keys and used by few sources.
    """

    columns: tuple[str, ...]
    spell: Callable[[], str] = field(repr=False)

    @cached_property
    def predicate(self) -> str:
        """Spark SQL over the columns that is true for every row the job needs; it may be true for other rows."""
        return self.spell()


@dataclass(frozen=True, slots=True)
class ParallelismInferenceContext:
    """What a source knows when it infers its parallelism.

    Parameters
    ----------
    parallelism_inference_upper_bound
        The most tasks it may get.
    data_volume_per_task
        The bytes a task should read.
    dynamic_filtering_info
        Facts about the rows that the job needs, or None.
    columns
        The columns that the job reads, or None for all.
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
    """What a source knows when it builds its scan.

    Parameters
    ----------
    parallelism
        The number of tasks it gets.
    data_volume_per_task
        The bytes a task should read.
    columns
        The columns that the job reads, or None for all.
    predicates
        Conditions that hold for every row the job needs. The source may skip other rows, but need not.
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

        Penstock calls it once, on the driver, in a thread of its own, after all upstream vertices have finished. An
        exception is recorded, and the source gets its upper bound. A call that does not return fails the job,
        see the option ``sources.timeout``.
        """


@runtime_checkable
class ParallelismProvider(Protocol):
    """A connector that may fix its parallelism when the query is planned (static inference)."""

    @property
    def parallelism(self) -> int | None:
        """The number of tasks, or None to leave it to Penstock."""


class Source(ABC):
    """A source that `Environment.read` turns into a DataFrame.

    A source with `DynamicParallelismInference.infer_parallelism` infers its parallelism while the job runs. A source
    with a `parallelism` that is not None has a fixed one.
    """

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's rows as an ordinary DataFrame. Reads no rows yet."""


@dataclass(frozen=True)
class SourceProvider:
    """A source with a parallelism that is fixed when the query is planned.

    Parameters
    ----------
    source
        The source.
    parallelism
        The number of tasks, or None to leave it to Penstock.
    """

    source: Source
    parallelism: int | None = None


class DataFrameScanProvider(Source):
    """A source that builds its scan while the job runs, when its parallelism and dynamic filters are known."""

    uses_predicates: ClassVar[bool] = True
    """Whether it skips data that ``context.predicates`` rule out."""

    @abstractmethod
    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the rows that the job needs, as a scan of files or as at most ``context.parallelism`` tasks.

        It has at least the columns of ``context.columns``, with the names and types that `read` gives them.
        """


@runtime_checkable
class CountableSplits(Protocol):
    """A `Scan` that can check whether its splits have every row once; ``execution.verify`` uses it."""

    def rows_not_read_once(self) -> int:
        """Return the number of rows of the source that are in no split, or in several."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a job for its sinks; a sink's own arguments override them.

    Parameters
    ----------
    target_file_size
        ``sink.target-file-size``, in bytes.
    auto_compaction
        ``sink.auto-compaction``.
    partition_commit
        ``sink.partition-commit.policy.kind``, the names of the policies.
    """

    target_file_size: int
    auto_compaction: bool = False
    partition_commit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What is said of one target; those that begin with ``sink.`` go before the options of the job.

    Parameters
    ----------
    options
        What was given with the writer, or as the OPTIONS of the table.
    properties
        The TBLPROPERTIES of the table.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a stage of a sink did.

    Parameters
    ----------
    chosen
        The result in a few words.
    reason
        The reason, half a sentence.
    tasks
        The number of Spark tasks, or None if the driver did it.
    """

    chosen: str
    reason: str
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class TasksWorth:
    """How many tasks the rows of a sink are worth.

    Parameters
    ----------
    tasks
        The number, at least 1.
    reason
        Why that many, half a sentence.
    """

    tasks: int
    reason: str


@dataclass(frozen=True)
class SinkStage:
    """A step of a sink after its rows are written; a node of the job's graph after the sink.

    Parameters
    ----------
    name
        The name that people see.
    run
        Runs the step. Called once per job, in its own thread.
    after_commit
        Whether the step waits until all sinks have committed. If it fails then, the job fails, and is undone if all
        its sinks can be undone.
    """

    name: str
    run: Callable[[SinkJob], StageReport]
    after_commit: bool = False


class SinkJob(ABC):
    """The writing of one job into a sink: all rows become visible, or none."""

    calls_python: bool = True
    """Whether the tasks of `write` may give rows to Python functions, besides those that make the rows. If not, narrow
    rows reach those that make the rows sooner."""

    def check(self, schema: StructType) -> None:  # noqa: B027
        """Refuse rows that the target cannot hold, before any vertex runs. The default accepts all.

        Raises
        ------
        SinkError
            If the target cannot hold rows with these columns.
        """

    @property
    def nothing_to_write(self) -> str | None:
        """Why the target needs no rows, half a sentence; `write` is not called then. None if it needs them."""
        return None

    @property
    def target_folder(self) -> str | None:
        """The folder that it writes to, whatever the sink calls it; None for a target that is no folder."""
        return None

    @property
    def makes_target(self) -> bool:
        """Whether the target is not there, and is made as a whole: no other sink of the job can add to it then."""
        return False

    @abstractmethod
    def write(self, df: DataFrame) -> None:
        """Write the rows where no reader sees them yet. Called once, in its own thread."""

    def sample_size(self, df: DataFrame) -> int:  # noqa: ARG002
        """Write some rows as `write` would, remove them, and return the bytes they took; 0 if not known.

        Called before `write`, and only for sinks with a `Sink.file_size`.
        """
        return 0

    def write_first(self, df: DataFrame, rows: int | None) -> TasksWorth | None:  # noqa: ARG002
        """Write some rows for good, and return how many tasks all of them are worth; None if that is not known.

        Called before `write`, which gets these rows too, and only for sinks that `Sink.measures_tasks`.

        Parameters
        ----------
        df
            A part of the rows; not all of them need be written.
        rows
            How many there are in all, None if that is not known.
        """
        return None

    def restart(self) -> bool:
        """Remove what a failed `write` has left, so that it can be called again; return whether that is possible.

        Spark itself repeats every failed stage except a barrier stage at the end of a query.
        """
        return False

    def prepare(self) -> Prepared | None:
        """Make the written rows durable, and return a record by which any process can commit or undo them.

        Called after all vertices of the job have finished and before any sink commits. It is called once more when no
        other commit is running, if the record replaces, or adds to, what other jobs may write. The default returns
        None, for sinks that only this process can commit: Penstock then calls `commit`, and cannot recover from a
        crash in it.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The secrets that the commit needs and journals do not keep, by `Prepared.address`; see `Access.secrets`."""
        return {}

    def commit(self) -> None:  # noqa: B027
        """Make all rows visible. Called only if `prepare` returned None."""

    @abstractmethod
    def abort(self) -> None:
        """Remove the written rows. Called if `prepare` was not called or returned None, even after `commit`."""

    def refresh(self) -> None:  # noqa: B027
        """Invalidate caches of the target in this session. Called after the commit, and after it was undone."""


def already_written(token: str) -> str:
    """Return why a job whose token is in the target already writes nothing."""
    return f"the target already has the rows of token {token!r}"


class NothingToWrite(SinkJob):
    """The writing of a job whose token is in the target already: it does not compute the rows.

    Parameters
    ----------
    token
        The token.
    why
        Why nothing is written, if not for the token.
    """

    def __init__(self, token: str, why: str | None = None) -> None:
        self._why = already_written(token) if why is None else why

    @property
    def nothing_to_write(self) -> str:
        """That the target has the token's rows, or what else was given."""
        return self._why

    def write(self, df: DataFrame) -> None:
        """Write nothing."""

    def restart(self) -> bool:
        """Return True: there is nothing to remove."""
        return True

    def abort(self) -> None:
        """Do nothing: this job has written nothing."""


class Sink(ABC):
    """A target of `Environment.write`."""

    parallelism: int | None = None
    materialised: ClassVar[bool] = False
    """Whether the sink needs its rows after an exchange of their own, so that they can be read again."""
    measures_tasks: ClassVar[bool] = False
    """Whether its first rows tell how many tasks it gets, see `SinkJob.write_first`; it is `materialised` then."""
    restartable: ClassVar[bool] = False
    """Whether its jobs can `SinkJob.restart`."""

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns: rows with other values go to other files."""
        return ()

    @property
    def place(self) -> str | None:
        """The folder or table that its rows go to, as `commit.place_of` spells folders; None if it is not known.

        A job is refused whose sinks write to one place, unless each of them only `adds` to it.
        """
        return None

    @property
    def adds(self) -> bool:
        """Whether the rows that are at the place stay, and rows of other sinks may come beside them."""
        return False

    def target_options(self, spark: SparkSession) -> TargetOptions:  # noqa: ARG002
        """Return what is said of this target alone."""
        return TargetOptions()

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:  # noqa: ARG002
        """Return the steps after the rows are written, in order."""
        return ()

    def file_size(self, options: SinkOptions) -> int | None:  # noqa: ARG002
        """Return the target bytes of a file, or None if the tasks before the sink write as they are.

        With a size and without a parallelism, Penstock adds an exchange by `partition_columns` before the sink, and
        divides it so that files have about this size.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The secrets that a commit needs and journals do not keep, by `Prepared.address`; see `Access.secrets`."""
        return {}

    def recover(self, access: Access) -> None:  # noqa: B027
        """Complete or undo the interrupted commit of a dead process at the target. Called before `open`."""

    @abstractmethod
    def open(self, spark: SparkSession) -> SinkJob:
        """Check the target and prepare writing, before any vertex runs.

        Raises
        ------
        SinkError
            If the target cannot be written.
        """


class DataFrameSinkProvider(ABC):
    """A target that adds its own operators before one or several sinks.

    These operators become vertices of the job like the user's own (FLIP-146).
    """

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @abstractmethod
    def consume_data_frame(self, df: DataFrame) -> Sequence[tuple[DataFrame, Sink]]:
        """Return one or several DataFrames made from `df`, each with its sink.

        Their common part runs once, and all sinks commit together.
        """


def checked_parallelism(value: object, where: str) -> int:
    """Return a user's parallelism as a number.

    Raises
    ------
    SourceError
        If it is not a whole number of at least 1.
    """
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None or number < 1:
        error = SourceError.bad_parallelism(value, where)
        error.tell_line(callers_line())
        raise error
    return number
