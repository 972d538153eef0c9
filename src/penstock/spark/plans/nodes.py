"""Logical plans as trees of plain values: the properties of nodes that the planner uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.bridge import answers
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.logical_plan import LogicalPlan

_REARRANGING = frozenset({"Aggregate", "Join", "Sort", "Window", "Repartition", "RepartitionByExpression"})


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Properties of a file relation (``HadoopFsRelation``)."""

    format: str
    """Spark's short name of the format, such as ``parquet``."""
    roots: tuple[str, ...]
    options: Mapping[str, str]
    """The last components of the root paths, and the reader options by lower-case key."""
    is_bucketed: bool
    """Whether Spark splits the files by buckets, not by size."""
    skips_corrupt_files: bool
    """Whether a task skips the rest of its split of a corrupt file (``ignoreCorruptFiles``)."""
    table: str = ""
    provider: str = ""
    """The catalog table and its provider; empty if there is none."""

    @property
    def name(self) -> str:
        """The displayed name: the table, or else the first of `roots` and the number of the others."""
        name = self.table or (self.roots[0] if self.roots else "files")
        return name if self.table or len(self.roots) <= 1 else f"{name} and {len(self.roots) - 1} more"


@dataclass(frozen=True, slots=True)
class SortFacts:
    """Whether a ``Sort`` sorts all rows together instead of the rows of each task, and its expressions as strings."""

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
    """The simple class name, such as ``Join``: the same as `kind`, without a JVM call."""
    children: tuple[LogicalNode, ...] = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    """The ids of the output columns, and their `Expression.key`, a string that is equal for equal expressions."""
    references: tuple[str, ...] = field(repr=False)
    """The ids of the columns that the node's expressions use."""
    description: str = field(repr=False)
    """A single-line description, including its expressions."""
    is_deterministic: bool = field(repr=False)
    """Whether all expressions of the subtree are deterministic; a LIMIT without an order is not detected."""
    cannot_fail: bool = field(default=False, repr=False)
    """Whether the node's expressions, without its inputs, cannot raise an error on any row."""
    functions: frozenset[str] = field(default=frozenset(), repr=False)
    nondeterministic: frozenset[str] = field(default=frozenset(), repr=False)
    """The names of the node's aggregate functions, and of its nondeterministic parts, such as ``Rand``, ``Sample``."""
    python_functions: frozenset[str] = field(default=frozenset(), repr=False)
    is_barrier: bool = field(default=False, repr=False)
    """The names of the node's Python functions; whether all tasks of the node's stage must run at the same time."""
    filters_only_nulls: bool = field(default=False, repr=False)
    """Whether the node is a filter that only excludes nulls."""
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By id of a column that the expressions use: its table's alias, or else name; absent if there is neither."""
    renamed_columns: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a projection or aggregate: the id of the input column, by id of an output column that only renames it."""
    renamed_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a projection or aggregate: the key of an output column, by the key of the expression that computes it."""
    is_generated_hash_aggregate: bool = field(default=False, repr=False)
    """Whether the node is a hash aggregate in generated code, which computes a result only where it is used."""
    files: FileFacts | None = field(default=None, repr=False)
    partition_columns: tuple[str, ...] = field(default=(), repr=False)
    """The names of the columns by which a leaf's files are partitioned."""
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

    @property
    def outline(self) -> str:
        """The kinds of operators that rearrange rows, and the sources, such as ``sort, aggregate of orders``."""
        kinds = dict.fromkeys(node.name.lower() for node in self.walk() if node.name in _REARRANGING)
        sources = dict.fromkeys(leaf.files.name if leaf.files else leaf.name.lower() for leaf in self.leaves())
        return f"{', '.join(kinds) or 'rows'} of {', '.join(sources)}"

    def has_columns(self, ids: Iterable[str]) -> bool:
        """Whether the output has all columns with some ids."""
        return set(ids) <= set(self.ids)

    def input_columns(self, ids: Iterable[str]) -> tuple[str, ...] | None:
        """Return the input columns of output columns `ids` of a projection or aggregate; None if any is computed."""
        input_ids = set(self.children[0].ids)
        columns = [column if column in input_ids else self.renamed_columns.get(column) for column in ids]
        input_columns = tuple(column for column in columns if column is not None)
        return input_columns if len(input_columns) == len(columns) else None

    def expressions(self, ids: Iterable[str]) -> tuple[Expression, ...]:
        """Return output columns as expressions."""
        return tuple(self._columns([self.ids.index(column) for column in ids]))

    def keys_in_output(self, keys: Iterable[Expression]) -> list[Expression]:
        """Return the output columns that equal some keys of the operator; empty if the output lacks any of the keys."""
        output_keys = [key.key if key.key in self.keys else self.renamed_keys.get(key.key, "") for key in keys]
        is_complete = set(output_keys) <= set(self.keys)
        return self._columns([self.keys.index(key) for key in output_keys]) if is_complete else []

    def _columns(self, positions: list[int]) -> list[Expression]:
        output: Any = self._handle.output() if positions else None
        return [Expression(self._bridge, output.apply(position), self.keys[position]) for position in positions]


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("ids", "keys", "references", "partition_columns"), tuple),
    **dict.fromkeys(("functions", "nondeterministic", "python_functions"), frozenset),
    "description": lambda text: " ".join(text.split()),
    "files": lambda facts: FileFacts(**{**facts, "roots": tuple(facts["roots"])}),
    "sort": lambda facts: SortFacts(facts["is_global"], tuple(facts["order"])),
    "repartition": lambda facts: RepartitionFacts(**facts),
}
"""Conversions of the facts that ``PlanReader.java`` returns, by name; other facts are not converted."""


def read_plan(plan: LogicalPlan) -> LogicalNode:
    """Return a logical plan as a tree of nodes."""
    bridge = plan._bridge
    answer = bridge.helper("PlanReader").read(plan._handle)
    all_facts = enumerate(answers.facts(answer))  # in pre-order: the facts of a node precede those of its children

    def node() -> LogicalNode:
        index, facts = next(all_facts)
        facts["children"] = tuple(node() for _ in range(facts["children"]))
        for name in facts.keys() & _CONVERSIONS.keys():
            facts[name] = _CONVERSIONS[name](facts[name])
        return LogicalNode(bridge, answer.handle(index), **facts)

    return node()
