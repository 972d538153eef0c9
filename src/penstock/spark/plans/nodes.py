"""Logical plans as trees of plain values: the properties of nodes that the planner uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge import answers
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Properties of a file relation (``HadoopFsRelation``)."""

    format: str
    """Spark's short name of the format, such as ``parquet``."""
    roots: tuple[str, ...]
    options: Mapping[str, str]
    bucketed: bool
    """Whether Spark splits it by buckets instead of by size."""
    skips_corrupt: bool
    """Whether a task skips the rest of its part of a corrupt file (``ignoreCorruptFiles``)."""
    table: str = ""
    provider: str = ""
    """The catalog table and its provider; empty if there is none."""

    @property
    def name(self) -> str:
        """The displayed name: the table's, else the path."""
        name = self.table or (self.roots[0] if self.roots else "files")
        return name if self.table or len(self.roots) <= 1 else f"{name} and {len(self.roots) - 1} more"


@dataclass(frozen=True, slots=True)
class SortFacts:
    """Whether a ``Sort`` sorts all rows, or only those of each task, and its expressions as strings."""

    is_global: bool
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepartitionFacts:
    """Whether a repartition shuffles rows, and the user's number of partitions, None if Spark chooses it."""

    shuffles: bool
    partitions: int | None


@dataclass(frozen=True, eq=False)
class LogicalNode(LogicalPlan):
    """A node of a logical plan with its properties. Columns are identified by their expression ids."""

    name: str
    children: tuple[LogicalNode, ...] = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    """The output columns by id, and by `Expression.key`."""
    references: tuple[str, ...] = field(repr=False)
    description: str = field(repr=False)
    """A single-line description, including its expressions."""
    is_deterministic: bool = field(repr=False)
    """Whether the subtree returns the same rows in each run."""
    cannot_fail: bool = field(default=False, repr=False)
    """Whether its own expressions cannot raise an error for any input."""
    functions: frozenset[str] = field(default=frozenset(), repr=False)
    unstable: frozenset[str] = field(default=frozenset(), repr=False)
    """Other nondeterministic functions in its expressions, by name; ``Subquery`` for a nondeterministic subquery."""
    python_functions: frozenset[str] = field(default=frozenset(), repr=False)
    is_barrier: bool = field(default=False, repr=False)
    """Whether all of its tasks must run at the same time."""
    only_not_null: bool = field(default=False, repr=False)
    """Whether it is a filter that only excludes nulls."""
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The query's aliases of the tables whose columns its expressions use."""
    moved: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a projection or aggregate: the input column of each output column that is only renamed."""
    renames: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a projection or aggregate: the output column's key, by the key of the deterministic expression in it."""
    is_generated_hash_aggregate: bool = field(default=False, repr=False)
    """For an aggregate: whether Spark computes its results lazily, where they are used, not for all of its rows."""
    files: FileFacts | None = field(default=None, repr=False)
    partition_columns: tuple[str, ...] = field(default=(), repr=False)
    """The names of the columns by which its files are partitioned."""
    sort: SortFacts | None = field(default=None, repr=False)
    repartition: RepartitionFacts | None = field(default=None, repr=False)

    def walk(self) -> Iterator[LogicalNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> list[LogicalNode]:
        """Return the nodes without inputs, from left to right."""
        return [node for node in self.walk() if not node.children]

    def has(self, ids: Iterable[str]) -> bool:
        """Whether all of some columns are in the output."""
        return set(ids) <= set(self.ids)

    def below(self, ids: Iterable[str]) -> tuple[str, ...] | None:
        """Return columns of a ``Project`` or ``Aggregate`` as columns of its input, None if any of them is computed."""
        input_ids = set(self.children[0].ids)
        sources = [column if column in input_ids else self.moved.get(column) for column in ids]
        moved = tuple(source for source in sources if source is not None)
        return moved if len(moved) == len(sources) else None

    def expressions(self, ids: Iterable[str]) -> tuple[Expression, ...]:
        """Return output columns as expressions."""
        return tuple(self._columns([self.ids.index(column) for column in ids]))

    def keys_in_output(self, keys: Iterable[Expression]) -> list[Expression]:
        """Return an operator's keys as output columns; empty if any of them is missing."""
        output_keys = [key.key if key.key in self.keys else self.renames.get(key.key, "") for key in keys]
        is_complete = set(output_keys) <= set(self.keys)
        return self._columns([self.keys.index(key) for key in output_keys]) if is_complete else []

    def _columns(self, positions: list[int]) -> list[Expression]:
        output: Any = self._handle.output() if positions else None
        return [Expression(self._bridge, output.apply(position), self.keys[position]) for position in positions]


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("ids", "keys", "references", "partition_columns"), tuple),
    **dict.fromkeys(("functions", "unstable", "python_functions"), frozenset),
    "description": lambda text: " ".join(text.split()),
    "files": lambda facts: FileFacts(**{**facts, "roots": tuple(facts["roots"])}),
    "sort": lambda facts: SortFacts(facts["is_global"], tuple(facts["order"])),
    "repartition": lambda facts: RepartitionFacts(**facts),
}
"""How the facts of ``PlanReader.java`` are converted; all others are unchanged."""


def read_plan(plan: LogicalPlan) -> LogicalNode:
    """Return a logical plan as a tree of nodes."""
    bridge = plan._bridge
    answer = bridge.helper("PlanReader").read(plan._handle)
    all_facts = enumerate(answers.facts(answer))

    def node() -> LogicalNode:
        index, facts = next(all_facts)
        facts["children"] = tuple(node() for _ in range(facts["children"]))
        for name in facts.keys() & _CONVERSIONS.keys():
            facts[name] = _CONVERSIONS[name](facts[name])
        return LogicalNode(bridge, answer.handle(index), **facts)

    return node()
