"""Logical plans as trees of plain values: the properties of nodes that the planner uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark import answers
from penstock.spark.expressions import Expression
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Properties of a file relation (``HadoopFsRelation``).

    Parameters
    ----------
    format
        Spark's short name of the format, such as ``parquet``.
    bucketed
        Whether Spark splits it by buckets instead of by size.
    skips_corrupt
        Whether corrupt files are ignored (``ignoreCorruptFiles``): a task then skips the rest of its part of the file.
    table, provider
        The catalog table and its provider; empty if there is none.
    """

    format: str
    roots: tuple[str, ...]
    options: Mapping[str, str]
    bucketed: bool
    skips_corrupt: bool
    table: str = ""
    provider: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> FileFacts:
        """Convert the facts of ``java/FileRelations.java``."""
        return cls(**{**facts, "roots": tuple(facts["roots"])})

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
    """A node of a logical plan with its properties. Columns are identified by their expression ids.

    Parameters
    ----------
    ids, keys
        The output columns by id, and by `Expression.key`.
    description
        A single-line description, including its expressions.
    is_deterministic
        Whether the subtree returns the same rows in each run.
    cannot_fail
        Whether its own expressions cannot raise an error for any input.
    unstable
        The names of other nondeterministic functions in its expressions; ``Subquery`` for a nondeterministic subquery.
    is_barrier
        Whether all of its tasks must run at the same time.
    only_not_null
        Whether it is a filter that only excludes nulls.
    aliases
        The query's aliases of the tables whose columns its expressions use.
    moved
        For a projection or aggregate: the input column of each output column that is only renamed.
    renames
        For a projection or aggregate: the output column's key, by the key of the deterministic expression in it.
    is_generated_hash_aggregate
        For an aggregate: whether Spark computes its results lazily, where they are used, not for all of its rows.
    partition_columns
        The names of the columns by which its files are partitioned.
    """

    name: str
    children: tuple[LogicalNode, ...] = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    references: tuple[str, ...] = field(repr=False)
    description: str = field(repr=False)
    is_deterministic: bool = field(repr=False)
    cannot_fail: bool = field(default=False, repr=False)
    functions: frozenset[str] = field(default=frozenset(), repr=False)
    unstable: frozenset[str] = field(default=frozenset(), repr=False)
    python_functions: frozenset[str] = field(default=frozenset(), repr=False)
    is_barrier: bool = field(default=False, repr=False)
    only_not_null: bool = field(default=False, repr=False)
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    moved: Mapping[str, str] = field(default_factory=dict, repr=False)
    renames: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_generated_hash_aggregate: bool = field(default=False, repr=False)
    files: FileFacts | None = field(default=None, repr=False)
    partition_columns: tuple[str, ...] = field(default=(), repr=False)
    sort: SortFacts | None = field(default=None, repr=False)
    repartition: RepartitionFacts | None = field(default=None, repr=False)

    @classmethod
    def of(cls, plan: LogicalPlan, facts: Mapping[str, Any], children: tuple[LogicalNode, ...]) -> LogicalNode:
        """Convert the facts of ``java/PlanReader.java``."""
        return cls(
            plan._bridge,
            plan._handle,
            name=facts["name"],
            children=children,
            ids=tuple(facts["ids"]),
            keys=tuple(facts["keys"]),
            references=tuple(facts["references"]),
            description=" ".join(facts["description"].split()),
            is_deterministic=facts["is_deterministic"],
            cannot_fail=facts["cannot_fail"],
            functions=frozenset(facts["functions"]),
            unstable=frozenset(facts["unstable"]),
            python_functions=frozenset(facts["python_functions"]),
            is_barrier=facts.get("is_barrier", False),
            only_not_null=facts.get("only_not_null", False),
            aliases=facts["aliases"],
            moved=facts.get("moved", {}),
            renames=facts.get("renames", {}),
            is_generated_hash_aggregate=facts.get("is_generated_hash_aggregate", False),
            files=FileFacts.of(facts["files"]) if "files" in facts else None,
            partition_columns=tuple(facts.get("partition_columns", ())),
            sort=SortFacts(facts["sort"]["is_global"], tuple(facts["sort"]["order"])) if "sort" in facts else None,
            repartition=RepartitionFacts(**facts["repartition"]) if "repartition" in facts else None,
        )

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


def read_plan(plan: LogicalPlan) -> LogicalNode:
    """Return a logical plan as a tree of nodes."""
    bridge = plan._bridge
    answer = bridge.helper("PlanReader").read(plan._handle)
    all_facts = enumerate(answers.facts(answer))

    def node() -> LogicalNode:
        index, facts = next(all_facts)
        part = LogicalPlan(bridge, answer.handle(index))
        return LogicalNode.of(part, facts, tuple(node() for _ in range(facts["children"])))

    return node()
