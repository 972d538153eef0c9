"""The interfaces of sources and sinks (FLIP-146, FLIP-379)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.predicates import Predicate


class DynamicFilteringInfo(Protocol):
    """What finished vertices tell of the rows of a source that can still matter; sources know the kinds they use."""


@dataclass(frozen=True)
class KeyFilter(DynamicFilteringInfo):
    """Rows of a source matter only if their keys are among those of a join's finished side.

    Parameters
    ----------
    columns
        The key columns of the source.
    spell
        Returns `predicate`, which is long where there are many keys, and wanted by few sources.
    """

    columns: tuple[str, ...]
    spell: Callable[[], str] = field(repr=False)

    @cached_property
    def predicate(self) -> str:
        """Spark SQL over the columns that is true for every row that matters; it may let others through."""
        return self.spell()


@dataclass(frozen=True, slots=True)
class ParallelismInferenceContext:
    """What a source may know when it is asked for its parallelism.

    Parameters
    ----------
    parallelism_inference_upper_bound
        The most tasks it may get.
    data_volume_per_task
        The bytes a task should read.
    dynamic_filtering_info
        What is known by now of the rows that matter, or None.
    columns
        The columns that are read; None for all.
    predicates
        What is true of every row that matters, dynamic filters among them.
    """

    parallelism_inference_upper_bound: int
    data_volume_per_task: int
    dynamic_filtering_info: DynamicFilteringInfo | None = None
    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanContext:
    """What a source may know when its scan is built.

    Parameters
    ----------
    parallelism
        How many tasks it gets.
    data_volume_per_task
        The bytes a task should read.
    columns
        The columns that are read; None for all.
    predicates
        What is true of every row that matters; other rows may be left out, and need not be.
    """

    parallelism: int
    data_volume_per_task: int
    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()


@runtime_checkable
class DynamicParallelismInference(Protocol):
    """A source that can tell at run time how many tasks it needs."""

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of tasks; 0 or less means that there is no answer.

        Called once, on the driver, off the scheduler's thread, after all upstream vertices have finished.
        An exception is recorded and counts as no answer; silence fails the job, see the option ``sources.timeout``.
        """


@runtime_checkable
class ParallelismProvider(Protocol):
    """A connector that may fix its parallelism when the plan is made (static inference)."""

    @property
    def parallelism(self) -> int | None:
        """The number of tasks, None to leave it to the planner."""


class Source(ABC):
    """Something `Environment.read` turns into a DataFrame.

    A source that also has `DynamicParallelismInference.infer_parallelism` is asked for its parallelism at run time;
    one with a `parallelism` that is not None has it fixed.
    """

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's rows as an ordinary DataFrame, without reading them yet."""


@dataclass(frozen=True)
class SourceProvider:
    """A source with a parallelism that is fixed when the plan is made.

    Parameters
    ----------
    source
        The source.
    parallelism
        The number of tasks, None to leave it to the planner.
    """

    source: Source
    parallelism: int | None = None


class DataFrameScanProvider(Source):
    """A source whose scan is built while the job runs: its parallelism is known by then, and so are dynamic filters."""

    uses_predicates: ClassVar[bool] = True
    """Whether it leaves out data that ``context.predicates`` rule out."""

    @abstractmethod
    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the rows that matter, as a scan of files or of at most ``context.parallelism`` tasks.

        Its columns are those of ``context.columns`` or more, by the names and types that `read` gives them.
        """


@runtime_checkable
class CountableSplits(Protocol):
    """A `Scan` that can find out whether its splits have every row once; asked by ``execution.verify``."""

    def rows_not_read_once(self) -> int:
        """Return how many rows of the source would be left out by the splits, or read by several of them."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a job's options say of its sinks; what a sink was given itself wins.

    Parameters
    ----------
    target_file_size
        ``sink.target-file-size``, in bytes.
    auto_compaction
        ``sink.auto-compaction``.
    partition_commit
        ``sink.partition-commit.policy.kind``, one word for each policy.
    """

    target_file_size: int
    auto_compaction: bool = False
    partition_commit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a stage of a sink did.

    Parameters
    ----------
    chosen
        In a few words.
    reason
        Why, in half a sentence.
    tasks
        How many Spark tasks did it, None if the driver did.
    """

    chosen: str
    reason: str
    tasks: int | None = None


@dataclass(frozen=True)
class SinkStage:
    """Something a sink does after its rows were written; a node of the job's graph behind the sink.

    Parameters
    ----------
    name
        A name for people.
    run
        Does it. Called once for a job, on a thread of its own.
    after_commit
        Whether it waits until everything is visible; if it fails then, the job fails, and is undone if all its sinks
        can be.
    """

    name: str
    run: Callable[[SinkJob], StageReport]
    after_commit: bool = False


class SinkJob(ABC):
    """The writing of one job into a sink: all of it appears, or nothing."""

    def check(self, schema: StructType) -> None:  # noqa: B027
        """Refuse rows that the target cannot hold, before any vertex runs; other sinks take what comes.

        Raises
        ------
        SinkError
            If the target cannot hold rows with these columns.
        """

    @abstractmethod
    def write(self, df: DataFrame) -> None:
        """Write the rows where nobody sees them yet. Called once, on a thread of its own."""

    def sample_size(self, df: DataFrame) -> int:  # noqa: ARG002
        """Write some rows as `write` would, remove them, and return the bytes they took; 0 if that cannot be told.

        Called, if at all, before `write`, for sinks with a `Sink.file_size`.
        """
        return 0

    def restart(self) -> bool:
        """Forget what a `write` that failed has left, so that it can be called again; return whether that can be.

        Spark repeats every kind of stage but one at the end of a query whose tasks run together.
        """
        return False

    def prepare(self) -> Prepared | None:
        """Make what was written durable, and return how any process can commit it, or undo it.

        Called after all vertices of the job have finished, and before any sink commits; again, once no other commit is
        under way, if the record replaces, or adds to, what other jobs may write. The default is for sinks whose
        commit only this process can do: `commit` is called instead, and a crash meanwhile leaves what it leaves.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """What the commit needs and journals do not keep, for each `Prepared.address`; see `Access.secrets`."""
        return {}

    def commit(self) -> None:  # noqa: B027
        """Make everything visible, if `prepare` returned None."""

    @abstractmethod
    def abort(self) -> None:
        """Remove whatever was written, if `prepare` was not called or returned None; then also after `commit`."""

    def refresh(self) -> None:  # noqa: B027
        """Let readers that keep rows see what is there now; called after the commit, and after it was undone."""


class NothingToWrite(SinkJob):
    """The writing of a job whose token is in the target already: its rows are not even made."""

    def write(self, df: DataFrame) -> None:
        """Leave the rows alone."""

    def restart(self) -> bool:
        """Return that there is nothing in the way."""
        return True

    def abort(self) -> None:
        """Do nothing; there is nothing of this job."""


class Sink(ABC):
    """A target of `Environment.write`."""

    parallelism: int | None = None
    materialised: ClassVar[bool] = False
    """Whether the sink wants its rows behind an exchange of their own, so that they can be read again."""
    restartable: ClassVar[bool] = False
    """Whether its jobs can `SinkJob.restart`."""

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @property
    def folders_by(self) -> Sequence[str]:
        """The columns by which rows go to files of their own."""
        return ()

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:  # noqa: ARG002
        """Return what is done after the rows were written, in order."""
        return ()

    def file_size(self, options: SinkOptions) -> int | None:  # noqa: ARG002
        """Return the bytes that files should have, None where the tasks of the upstream write as they are.

        Where there is a size, and no parallelism is given, the rows come through an exchange by `folders_by` that is
        cut to fit.
        """
        return None

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """What journals do not keep and a commit needs, for each `Prepared.address`; see `Access.secrets`."""
        return {}

    def recover(self, access: Access) -> None:  # noqa: B027
        """Complete or take back what a dead process has left half-way at the target; called before `open`."""

    @abstractmethod
    def open(self, spark: SparkSession) -> SinkJob:
        """Check the target and prepare writing, before any vertex runs.

        Raises
        ------
        SinkError
            If the target cannot be written as asked.
        """


class DataFrameSinkProvider(ABC):
    """A target that is more than one function: it adds operators of its own before what it writes.

    They become vertices of the job like the user's own, and are decided like them (FLIP-146).
    """

    @property
    def name(self) -> str:
        """A name for people."""
        return type(self).__name__

    @abstractmethod
    def consume_data_frame(self, df: DataFrame) -> Sequence[tuple[DataFrame, Sink]]:
        """Return what is written where: one or several DataFrames made of `df`, each with its sink.

        What they share is run once, and all sinks commit together.
        """


def checked_parallelism(value: object, where: str) -> int:
    """Return a parallelism a user gave.

    Raises
    ------
    SourceError
        If it is not a whole number of at least 1.
    """
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None and isinstance(value, str) and value.strip().isdigit():
        number = int(value)
    if number is None or number < 1:
        raise SourceError.bad_parallelism(value, where)
    return number
