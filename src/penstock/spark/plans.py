"""Logical plans as trees of plain values: what the planner wants to know of a node."""

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
    """What a relation of files (``HadoopFsRelation``) is.

    Parameters
    ----------
    format
        The short name of its format, such as ``parquet``.
    roots
        The names of its paths.
    options
        Its options, by their names in small letters.
    bucketed
        Whether Spark cuts it by buckets, not by size.
    skips_corrupt
        Whether corrupt files are no error (``ignoreCorruptFiles``): a task then skips the rest of its part of a file.
    table, provider
        Its table in the catalog, and what that was made with; empty if it is none.
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
        """Return what ``java/FileRelations.java`` tells about a relation."""
        return cls(**{**facts, "roots": tuple(facts["roots"])})

    @property
    def name(self) -> str:
        """The name of the table, or the path, for people."""
        name = self.table or (self.roots[0] if self.roots else "files")
        return name if self.table or len(self.roots) <= 1 else f"{name} and {len(self.roots) - 1} more"


@dataclass(frozen=True, slots=True)
class SortFacts:
    """What a ``Sort`` wants.

    Parameters
    ----------
    is_global
        Whether it orders all rows, not only those of each task.
    order
        By what, as Spark prints it.
    """

    is_global: bool
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepartitionFacts:
    """What a ``Repartition`` or ``RepartitionByExpression`` wants.

    Parameters
    ----------
    shuffles
        Whether rows are moved; ``coalesce`` moves none.
    partitions
        The number of partitions that a user gave, None where it is left to Spark.
    """

    shuffles: bool
    partitions: int | None


@dataclass(frozen=True, eq=False)
class LogicalNode(LogicalPlan):
    """A node of a logical plan that was read. Columns go by their expression ids.

    Parameters
    ----------
    name
        The simple name of its class, such as ``Join``.
    children
        Its inputs.
    ids, keys
        The columns of its output; and the same as `Expression.key` spells them.
    references
        The columns that its expressions refer to.
    description
        One line about it, its own expressions included.
    is_deterministic
        Whether the subtree gives the same rows each time it runs.
    cannot_fail
        Whether none of its own expressions can raise an error, whatever its input holds.
    functions
        The names of the aggregate functions in its expressions.
    unstable
        The names of all else in its expressions that is not deterministic; ``Subquery`` for one that has such in it.
    python_functions
        The names of the Python functions in its expressions.
    is_barrier
        Whether all of its tasks must run at the same time.
    only_not_null
        Whether it is a filter that wants nothing but columns that are not null.
    aliases
        What the query calls the tables of the columns that its expressions refer to, where it names a table.
    moved
        Of a projection or aggregate: the input's column by the column that is the same under another id.
    renames
        Of a projection or aggregate: the key of the output's column by the key of the deterministic expression that
        it stands for.
    is_generated_hash_aggregate
        Of an aggregate: whether Spark computes its results where they are used, and not for all of its rows.
    files
        Of a relation of files, what it is.
    partition_columns
        The names of the columns that its files or partitions are laid out by.
    sort, repartition
        Of a sort or a repartition, what it wants.
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
        """Return a node of what ``java/PlanReader.java`` tells about it."""
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
        """Iterate over the node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> list[LogicalNode]:
        """Return the nodes without inputs, from left to right."""
        return [node for node in self.walk() if not node.children]

    def has(self, ids: Iterable[str]) -> bool:
        """Whether all of some columns are in its output."""
        return set(ids) <= set(self.ids)

    def below(self, ids: Iterable[str]) -> tuple[str, ...] | None:
        """Return columns of a ``Project`` or ``Aggregate`` as columns of its input, None if one of them is computed."""
        there = set(self.children[0].ids)
        found = [one if one in there else self.moved.get(one) for one in ids]
        moved = tuple(one for one in found if one is not None)
        return moved if len(moved) == len(found) else None

    def expressions(self, ids: Iterable[str]) -> tuple[Expression, ...]:
        """Return columns of its output as expressions."""
        return tuple(self._columns([self.ids.index(one) for one in ids]))

    def keys_in_output(self, keys: Iterable[Expression]) -> list[Expression]:
        """Return an operator's keys as columns of its output; empty if one of them is not there."""
        there = [key.key if key.key in self.keys else self.renames.get(key.key, "") for key in keys]
        return self._columns([self.keys.index(one) for one in there]) if set(there) <= set(self.keys) else []

    def _columns(self, places: list[int]) -> list[Expression]:
        output: Any = self._handle.output() if places else None
        return [Expression(self._bridge, output.apply(place), self.keys[place]) for place in places]


def read_plan(plan: LogicalPlan) -> LogicalNode:
    """Return a logical plan as a tree."""
    bridge = plan._bridge
    answer = bridge.helper("PlanReader").read(plan._handle)
    places = enumerate(answers.facts(answer))

    def node() -> LogicalNode:
        place, facts = next(places)
        part = LogicalPlan(bridge, answer.handle(place))
        return LogicalNode.of(part, facts, tuple(node() for _ in range(facts["children"])))

    return node()
