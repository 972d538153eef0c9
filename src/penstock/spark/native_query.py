"""Queries that DuckDB computes, all or most of them, in a single task (``java/NativeQueries.java``).

The parts of an optimised plan for which Spark would exchange rows become one query of DuckDB's each. What Spark alone
can do is above them, and small: an order, a limit, a function that DuckDB does not have.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import first_line
from penstock.native.columns import Column
from penstock.native.errors import NOT_NATIVE, NotNativeError
from penstock.native.files import FileRange, Files
from penstock.native.query import NamedResult, NativeQueryStep, Table
from penstock.sizing.coverage import check_rows
from penstock.spark import answers, exchange, layouts, verification
from penstock.spark.expressions import Expression
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import Statistics
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.native_failures import failed_before, failing_at_once, remember, why_failed
from penstock.spark.native_operators import mapped, sent_columns
from penstock.spark.settings import change_settings, is_true
from penstock.spark.whole import spark_rows

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.native")

_SUBPARTITIONS = 8
"""Into so many parts a result is dealt out: if it is large, what Spark does with it should have many tasks."""
_OF_ONE_TASK = 16 << 20
"""Bytes of a result that one task reads, so that Spark exchanges nothing above it; as Spark's advisory size is 64 MiB
of rows that are compressed less."""
_WORK = ("Python", "Arrow", "Pandas", "Generate")
"""Words of Spark's operators that may take long for a row: their rows should have many tasks, however few bytes."""


@dataclass(frozen=True, slots=True)
class NativePlan:
    """An optimised plan of which DuckDB can compute parts.

    Parameters
    ----------
    plan
        The plan.
    parts
        The queries of DuckDB.
    why
        Why what is above them is none of theirs, for what Spark has to do.
    rest_in_bytes
        What the tables and other leaves hold that are in none of them, by Spark's estimates.
    rest_may_fail
        Whether what Spark computes besides may raise an error.
    has_late_values
        Whether Spark makes values that may fail of a part's rows behind a filter or join that leaves some out.
    _searched, _places
        The plan in which they were found, and where they stand in it.
    """

    plan: LogicalPlan
    parts: tuple[NativeQueryPart, ...]
    why: tuple[str, ...]
    rest_in_bytes: int
    rest_may_fail: bool
    has_late_values: bool
    _searched: Any
    _places: tuple[Any, ...]

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the files that they read."""
        return sum(table.size_in_bytes for part in self.parts for table in part.tables)

    @property
    def tables(self) -> list[str]:
        """The names of the tables that they read."""
        return sorted({table.name for part in self.parts for table in part.tables})

    def rows(self, memory: int, threads: int, *, is_checked: bool = False) -> LogicalPlan | str:
        """Compute the parts; return a leaf of the rows of the whole query, whose last stage has not run.

        Where DuckDB fails, the reason is returned.

        Parameters
        ----------
        memory
            Bytes that DuckDB may use before it spills.
        threads
            How many threads compute.
        is_checked
            Whether the exchanged rows of each part are counted, and looked for where they should be.

        Raises
        ------
        VerificationError
            If a check fails.
        """
        bridge = self.plan._bridge
        places = [LogicalPlan(bridge, place) for place in self._places]
        most = 0 if any(word in one for one in self.why for word in _WORK) else _OF_ONE_TASK
        leaves = []
        for part, place in zip(self.parts, places, strict=True):
            # All values of the side of a join that is broadcast are computed. By the estimate, it is the one that Spark
            # broadcasts without DuckDB.
            estimated = Statistics(bridge, place._handle.stats()) if self.has_late_values else None
            try:
                leaves.append(_computed(bridge, part, place, memory, threads, most, estimated, is_checked=is_checked))
            except Exception as error:
                why = why_failed(bridge, error)
                if why is None:
                    raise
                log.warning("Spark computes what DuckDB could not: %s", why)
                remember(bridge, place, why)
                return why
        made = bridge.helper("NativeQueries").withParts(self._searched, list(self._places), leaves)
        session = _with_late_values(bridge) if self.has_late_values else None
        return spark_rows(LogicalPlan(bridge, made), session)


@dataclass(frozen=True, slots=True)
class NativeQueryPart:
    """A query of DuckDB: what it computes, gives, and reads."""

    sql: str
    results: tuple[NamedResult, ...]
    columns: tuple[Column, ...]
    tables: tuple[Table, ...]


def exchange_count(plan: LogicalPlan) -> float:
    """Return about how often Spark exchanges rows for an optimised plan; a broadcast is a part of an exchange."""
    bridge = plan._bridge
    return float(bridge.helper("ExchangeCount").of(plan._handle, bridge.session))


def native_plan(plan: LogicalPlan) -> NativePlan | str:
    """Return what DuckDB can compute of an optimised plan, or why that is nothing."""
    bridge = plan._bridge
    try:
        answer = bridge.helper("NativeQueries").find(plan._handle, bridge.session)
        facts = answers.facts(answer)
        parts = tuple(map(_part, facts["parts"]))
        why = tuple(dict.fromkeys(facts["why"]))
        if not parts:
            return f"it has {why[0]}" if why else "Spark exchanges no rows for it"
        for part in parts:
            for table in part.tables:
                table.check()
    except NotNativeError as error:
        return str(error).removeprefix(NOT_NATIVE)
    except Exception as error:  # Spark's plan is there
        log.warning("DuckDB cannot be asked for a query; Spark computes it", exc_info=True)
        return f"looking for what it can compute failed: {first_line(error)}"
    places = tuple(answer.handle(1 + number) for number in range(len(parts)))
    reasons = [reason for place in places if (reason := failed_before(bridge, place)) is not None]
    if reasons:
        return reasons[0]
    rest = facts["rest"], facts["rest_may_fail"], facts["has_late_values"]
    return NativePlan(plan, parts, why, *rest, answer.handle(0), places)


def _computed(
    bridge: Bridge,
    part: NativeQueryPart,
    place: LogicalPlan,
    memory: int,
    threads: int,
    most: int,
    estimated: Statistics | None,
    *,
    is_checked: bool,
) -> Any:
    """Compute a part; return its rows, which lie ready, as a leaf.

    Parameters
    ----------
    bridge, part, place, memory, threads, is_checked
        As in `NativePlan.rows`; the place is what the leaf replaces.
    most
        Bytes of a result that one task reads.
    estimated
        What Spark's planner sees of the rows instead of what was measured; None if that is not wanted.
    """
    session = _with_stages(bridge)
    step = NativeQueryStep(part.sql, part.results, part.columns, part.tables, memory, threads)
    made = mapped(bridge.spark.range(0, 1, 1, 1), step, sent_columns(part.columns))
    rows = bridge.helper("NativeQueries").withOutput(made, place.output)
    written = LogicalPlan(bridge, rows)
    keys = [bridge.helper("NativeQueries").hashed(place.output)]
    spread = written.hashed_by([Expression(bridge, key) for key in keys if key is not None], _SUBPARTITIONS)
    with failing_at_once(bridge):
        result = exchange.write(session, written.rebalanced(1) if None in keys else spread)
    is_small = (result.size_in_bytes or 0) <= most
    physical = exchange.as_cut(result, [(0, result.subpartitions)] if is_small else None)
    spark_layout, rows = layouts.layout(physical, place.output), physical.rows()
    if is_checked:
        who = f"the result of DuckDB for {', '.join(sorted(table.name for table in part.tables))}"
        rows = rows if spark_layout is None else verification.checked(rows, spark_layout, place.output, who)
        check_rows(who, result.exact_rows, verification.count(rows))
    layout = layouts.shareable(spark_layout)
    leaf = rdd_leaf(session, place.output, rows, layout=layout, statistics=estimated or result.statistics)
    return leaf._handle


def _with_late_values(bridge: Bridge) -> Session:
    """Return a session that computes no value before rows are left out because two others have it in common."""
    session = bridge.session.clone()
    change_settings(session, {"spark.sql.subexpressionElimination.enabled": "false"})
    return session


def _with_stages(bridge: Bridge) -> Session:
    """Return a session whose plans run stage by stage: the user's, or a clone where it runs without AQE."""
    if is_true(bridge.spark.conf.get("spark.sql.adaptive.enabled")):
        return bridge.session
    session = bridge.session.clone()
    change_settings(session, {"spark.sql.adaptive.enabled": "true"})
    return session


def _part(facts: dict[str, Any]) -> NativeQueryPart:
    """Return a part of what ``java/NativeQueries.java`` tells of it."""
    results = tuple(NamedResult(*one) for one in facts["results"])
    return NativeQueryPart(facts["sql"], results, _columns(facts["columns"]), tuple(map(_table, facts["tables"])))


def _columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(**one) for one in facts)


def _table(facts: dict[str, Any]) -> Table:
    ranges = tuple(FileRange(**one) for one in facts["files"])
    return Table(facts["name"], Files(_columns(facts["read"]), facts["calendar"], _columns(facts["folders"])), ranges)
