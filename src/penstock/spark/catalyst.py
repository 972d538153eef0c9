"""Reading Catalyst plans: what the planner wants to know of a logical node, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.location import SourceLine
from penstock.spark.jvm import children, class_name, items, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from penstock.spark.jvm import Bridge

LARGE = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class LogicalNode:
    """A node of a logical plan.

    Parameters
    ----------
    name
        The simple name of its class, such as ``Join``.
    handle
        The plan in the JVM.
    children
        Its inputs.
    """

    name: str
    handle: Any = field(repr=False)
    children: tuple[LogicalNode, ...] = field(repr=False)

    def walk(self) -> Iterator[LogicalNode]:
        """Iterate over the node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> list[LogicalNode]:
        """Return the nodes without inputs, from left to right."""
        return [node for node in self.walk() if not node.children]


def read_plan(plan: Any) -> LogicalNode:
    """Return a logical plan as a tree."""
    return LogicalNode(class_name(plan), plan, tuple(read_plan(child) for child in children(plan)))


def analyzed_plan(df: DataFrame) -> Any:
    """Return the analysed plan of a DataFrame (``QueryExecution.analyzed``)."""
    return df._jdf.queryExecution().analyzed()


def optimized_plan(df: DataFrame) -> Any:
    """Return the optimised plan of a DataFrame, with cached data in place (``QueryExecution.optimizedPlan``)."""
    return df._jdf.queryExecution().optimizedPlan()


def optimize(session: Any, analyzed: Any) -> Any:
    """Return the optimised plan of an analysed one (``SessionState.executePlan``)."""
    analyzed.setAnalyzed()
    return session.sessionState().executePlan(analyzed, *_execute_mode(session)).optimizedPlan()


def _execute_mode(session: Any) -> tuple[Any, ...]:
    state = session.sessionState()
    return (getattr(state, "executePlan$default$2")(),)


def output_ids(plan: Any) -> tuple[str, ...]:
    """Return the ids of a plan's output attributes, as `expression_key` spells them."""
    output = plan.output()
    texts = [_ATTRIBUTE.search(text) for text in _texts(output)]
    return tuple(
        f"none#{match[1]}{match[2]}" if match else expression_key(output.apply(i)) for i, match in enumerate(texts)
    )


def expression_key(expression: Any) -> str:
    """Return a text that is equal for expressions that compute the same of the same attributes."""
    return str(expression.canonicalized().toString())


_GROWING = {
    "CollectList": "collect_list keeps every value",
    "CollectSet": "collect_set keeps every distinct value",
    "ListAgg": "listagg keeps every value",
    "Percentile": "an exact percentile keeps every value",
    "PercentileCont": "an exact percentile keeps every value",
    "PercentileDisc": "an exact percentile keeps every value",
    "Median": "an exact median keeps every value",
    "Mode": "mode keeps every value",
    "PythonUDAF": "a Python function wants all rows of a group at once",
}

_MAY_GROW = re.compile("collect|agg|percentile|median|mode|more field")
"""Is in the text of all of these under each of their names, but for Python's, and in texts that Spark has cut short."""


def merging_facts(bridge: Bridge, aggregate: LogicalNode) -> dict[str, Any]:
    """Return whether partial results of an aggregate's groups can be merged and stay small, and if not why."""
    expressions = aggregate.handle.aggregateExpressions()
    python = bridge.companion("org.apache.spark.sql.catalyst.trees.TreePattern").PYTHON_UDF()
    if not _MAY_GROW.search(str(expressions.mkString("\x00"))) and not aggregate.handle.containsPattern(python):
        return {"mergeable": True}
    todo = items(expressions)
    while todo:
        expression = todo.pop()
        name = class_name(expression)
        if name in _GROWING:
            return {"mergeable": False, "not_mergeable_because": _GROWING[name]}
        todo += children(expression)
    return {"mergeable": True}


def expression_sql(expression: Any) -> str:
    """Return an expression as Spark SQL."""
    return str(expression.sql())


def describe(plan: Any) -> str:
    """Return one line about a node, its own expressions included."""
    return " ".join(str(plan.simpleString(25)).split())


def grouping_keys(node: LogicalNode) -> list[Any]:
    """Return the expressions by which an operator wants its rows together; empty if all rows belong to one group."""
    match node.name:
        case "Aggregate":
            return items(node.handle.groupingExpressions())
        case "Window" | "WindowInPandas" | "ArrowWindowPython" | "WindowGroupLimit":
            return items(node.handle.partitionSpec())
        case _:
            return items(node.handle.groupingAttributes())


def is_global_sort(node: LogicalNode) -> bool:
    """Whether a ``Sort`` orders all rows, not only those of each task."""
    return bool(getattr(node.handle, "global")())


def row_limit(node: LogicalNode) -> int | None:
    """Return how many rows a limit lets through, None of an operator that is none or computes it."""
    if node.name not in {"GlobalLimit", "LocalLimit"} or class_name(node.handle.limitExpr()) != "Literal":
        return None
    return int(str(node.handle.limitExpr().toString()))


def keys_in_output(node: LogicalNode, keys: list[Any]) -> list[Any]:
    """Return an operator's keys as attributes of its output; empty if one of them is not there."""
    output = node.handle.output()
    places = {text: place for place, text in enumerate(output_ids(node.handle))}
    renamed: dict[str, str] | None = None
    found = []
    for key in keys:
        text = expression_key(key)
        if text not in places:
            renamed = renames(node) if renamed is None else renamed
            text = renamed.get(text, "")
        if text not in places:
            return []
        found.append(output.apply(places[text]))
    return found


def renames(node: LogicalNode) -> dict[str, str]:
    """Return, for what a node computes anew, the key of an output attribute by the key of what it stands for.

    Only plain expressions and aliases of deterministic ones count.
    """
    match node.name:
        case "Project":
            listed = items(node.handle.projectList())
        case "Aggregate":
            listed = items(node.handle.aggregateExpressions())
        case _:
            return {}
    found = {}
    for named in listed:
        if class_name(named) == "Alias":
            child = named.child()
            if child.deterministic():
                found[expression_key(child)] = expression_key(named.toAttribute())
    return found


_ATTRIBUTE = re.compile(r"#(\d+)(L?)$")


def attribute_ids(expressions: Any) -> list[str]:
    """Return the expression ids of a ``Seq`` of attributes, an empty text for what cannot be one.

    Whatever prints like an attribute has an id here; see `is_attribute`. All cost one call.
    """
    found = map(_ATTRIBUTE.search, _texts(expressions))
    return [match[1] if match else "" for match in found]


def _texts(expressions: Any) -> list[str]:
    return [] if expressions.isEmpty() else str(expressions.mkString("\x00")).split("\x00")


def is_attribute(expression: Any) -> bool:
    """Whether an expression is a plain column."""
    return class_name(expression) == "AttributeReference"


class Columns:
    """The columns of plans by their expression ids, looked up once for each plan."""

    def __init__(self) -> None:
        self._output: dict[LogicalNode, list[str]] = {}

    def of(self, node: LogicalNode) -> list[str]:
        """Return the ids of a plan's output."""
        if node not in self._output:
            self._output[node] = attribute_ids(node.handle.output())
        return self._output[node]

    def referenced(self, node: LogicalNode) -> list[str]:
        """Return the ids of the columns that an operator's expressions refer to."""
        return attribute_ids(node.handle.references().toSeq())

    def has(self, node: LogicalNode, ids: Iterable[str]) -> bool:
        """Whether all of some columns are in a plan's output."""
        return set(ids) <= set(self.of(node))

    def below(self, node: LogicalNode, ids: Sequence[str]) -> list[str] | None:
        """Return columns of a ``Project`` or ``Aggregate`` as columns of its input, None if one of them is computed."""
        there = set(self.of(node.children[0]))
        moved = []
        for one in ids:
            if one in there:
                moved.append(one)
                continue
            listed = node.handle.projectList() if node.name == "Project" else node.handle.aggregateExpressions()
            alias = listed.apply(self.of(node).index(one))
            if class_name(alias) != "Alias" or not is_attribute(alias.child()):
                return None
            moved += attribute_ids(alias.references().toSeq())
        return moved

    def rebound(
        self, keys: Sequence[Any], ids: Sequence[str], node: LogicalNode, there: Sequence[str]
    ) -> tuple[Any, ...]:
        """Return expressions with their columns, given by id, replaced by columns of a plan's output."""
        columns = dict(zip(ids, self.expressions(node, there), strict=True))

        def column(expression: Any) -> Any | None:
            if not is_attribute(expression):
                return None
            (found,) = attribute_ids(expression.references().toSeq())
            return columns[found]

        return tuple(replaced(key, column) for key in keys)

    def expressions(self, node: LogicalNode, ids: Sequence[str]) -> tuple[Any, ...]:
        """Return columns of a plan's output by their ids."""
        output, places = node.handle.output(), self.of(node)
        return tuple(output.apply(places.index(one)) for one in ids)


def replaced(expression: Any, replacement: Callable[[Any], Any | None]) -> Any:
    """Return an expression with some of its parts replaced; `replacement` returns None for what stays."""
    new = replacement(expression)
    if new is not None:
        return new
    old = children(expression)
    inner = [replaced(child, replacement) for child in old]
    if all(a is b for a, b in zip(old, inner, strict=True)):
        return expression
    changed = expression.children().empty()
    for child in inner:
        changed = changed.appended(child)
    return expression.withNewChildren(changed)


def grouped_by(node: LogicalNode, ids: Iterable[str]) -> bool:
    """Whether all of some columns are among those by which an operator wants its rows together."""
    groups = node.handle.groupingExpressions() if node.name == "Aggregate" else node.handle.partitionSpec()
    found = attribute_ids(groups)
    return all(one in found and is_attribute(groups.apply(found.index(one))) for one in ids)


def is_partitioned_by(leaf: Any, keys: Sequence[Any]) -> bool:
    """Whether one of some columns is a partition column of files (``HadoopFsRelation``) or of a table of Hive's."""
    if class_name(leaf) == "HiveTableRelation":
        names = {str(column.name()) for column in items(leaf.partitionCols())}
    elif is_files(leaf):
        names = {str(name) for name in leaf.relation().partitionSchema().fieldNames()}
    else:
        return False
    return bool(names) and any(is_attribute(key) and str(key.name()) in names for key in keys)


def reduces(node: LogicalNode) -> bool:
    """Whether a subtree may give much less than its leaves hold: it is more than columns that are not null."""
    return any(
        not (part.name == "Project" or not part.children or part.name in _ALL_ROWS)
        and not (part.name == "Filter" and _only_not_null(part.handle.condition()))
        for part in node.walk()
    )


_ALL_ROWS = frozenset({"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})


def _only_not_null(condition: Any) -> bool:
    if class_name(condition) == "And":
        return all(_only_not_null(part) for part in children(condition))
    return class_name(condition) == "IsNotNull"


def filters_groups(node: LogicalNode) -> bool:
    """Whether what a subtree gives are groups of an aggregate that a filter has chosen from (HAVING)."""
    chooses = False
    while node.name in {"Project", "Filter", "Aggregate"}:
        if node.name == "Aggregate":
            return chooses
        chooses = chooses or (node.name == "Filter" and not _only_not_null(node.handle.condition()))
        node = node.children[0]
    return False


def is_deterministic(node: LogicalNode) -> bool:
    """Whether a subtree gives the same rows each time it runs (``QueryPlan.deterministic`` asks the inputs too)."""
    return bool(node.handle.deterministic())


def gives_the_same_again(node: LogicalNode) -> bool:
    """Whether running a deterministic subtree once more certainly gives the same rows.

    Limits, samples and windows over ties may choose others, sums of floats differ in their last digits, and what is
    not in files may have changed.
    """
    steady = {"Project", "Filter", "Join", "Union", "LocalRelation", "Range", "OneRowRelation"}
    return all(part.name in steady or is_files(part.handle) for part in node.walk())


def is_files(plan: Any) -> bool:
    """Whether a plan is a scan of files (``HadoopFsRelation``)."""
    return class_name(plan) == "LogicalRelation" and class_name(plan.relation()) == "HadoopFsRelation"


def same_result(left: Any, right: Any) -> bool:
    """Whether two plans give the same rows, column by column."""
    return bool(left.sameResult(right))


def semantic_hash(plan: Any) -> int:
    """Return a hash that is equal for plans with the same result."""
    return int(plan.semanticHash())


def size_in_bytes(plan: Any) -> int:
    """Return Spark's own estimate of the bytes a plan gives, capped at 2**62."""
    size = plan.stats().sizeInBytes()
    return min(int(size.toString()) if not isinstance(size, int) else size, LARGE)


def read_fraction(bridge: Bridge, scan: Any, leaf: Any) -> float:
    """Return which part of a row a scan reads, by the widths Spark assumes for its columns.

    Parameters
    ----------
    scan
        A run of projections and filters over a leaf.
    leaf
        The leaf.
    """
    if scan is leaf:
        return 1.0
    used, node = scan.references(), scan
    while node is not leaf and node.children().size() == 1:
        used = used.__getattr__("$plus$plus")(node.references())
        node = node.children().apply(0)
    wanted = used.intersect(leaf.outputSet())
    to_schema = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils")
    whole = int(leaf.schema().defaultSize())
    return min(1.0, int(to_schema.fromAttributes(wanted.toSeq()).defaultSize()) / whole) if whole else 1.0


def leaf_bytes(plan: Any) -> int:
    """Return Spark's estimate of the bytes all leaves of a plan hold, those of subqueries included."""
    total = sum(size_in_bytes(leaf) for leaf in items(plan.collectLeaves()))
    for subquery in items(plan.subqueriesAll()):
        total += sum(size_in_bytes(leaf) for leaf in items(subquery.collectLeaves()))
    return total


def observes_metrics(plan: Any) -> bool:
    """Whether a plan has ``CollectMetrics`` in it (``DataFrame.observe``)."""
    return "CollectMetrics" in str(plan.toString())


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """What an equi-join is made of.

    Parameters
    ----------
    join_type
        Spark's name, such as ``Inner`` or ``LeftOuter``.
    left_keys, right_keys
        The key expressions in the JVM, pairwise.
    left_hint, right_hint
        The join strategy hint of each side, such as ``broadcast``, or an empty text.
    """

    join_type: str
    left_keys: tuple[Any, ...]
    right_keys: tuple[Any, ...]
    left_hint: str
    right_hint: str


def join_facts(bridge: Bridge, join: LogicalNode) -> JoinFacts | None:
    """Return the facts of an equi-join; None if Spark finds no equality of keys in it.

    Uses ``ExtractEquiJoinKeys`` (Spark 4.0 to 4.3).
    """
    extractor = bridge.companion("org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys")
    found = option(extractor.unapply(join.handle))
    if found is None:
        return None
    hint = join.handle.hint()
    return JoinFacts(
        str(join.handle.joinType().toString()),
        tuple(items(found._2())),
        tuple(items(found._3())),
        _hint(hint.leftHint()),
        _hint(hint.rightHint()),
    )


def _hint(info: Any) -> str:
    strategy = option(info.get().strategy()) if info.isDefined() else None
    return "" if strategy is None else str(strategy.displayName())


def user_line(plan: Any) -> SourceLine | None:
    """Return the user's line that made an operator, from what PySpark noted on its expressions, if anything.

    PySpark notes the line of functions and operators on columns (``Origin.pysparkErrorContext``), not of methods
    of a DataFrame.
    """
    todo = items(plan.expressions())[:8]
    for _ in range(64):
        if not todo:
            return None
        expression = todo.pop(0)
        context = option(expression.origin().pysparkErrorContext())
        if context is not None:
            site = str(context._2())
            file, _, line = site.rpartition(":")
            if line.isdigit():
                return SourceLine(file, int(line))
        todo += children(expression)
    return None
