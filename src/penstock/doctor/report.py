"""A diagnosis as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from penstock.base.units import show_bytes, show_count
from penstock.web.formatting import seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.doctor.diagnosis import Diagnosis, Facts
    from penstock.doctor.finding import Finding


def summary(facts: Facts) -> str:
    """Return a sentence about what an application did, and where its time went."""
    idle = max(facts.seconds - facts.task_seconds - facts.query_seconds, 0.0)
    return (
        f"{facts.name} ran for {seconds(facts.seconds)} on {show_count(facts.cores, 'core')}: tasks ran for "
        f"{seconds(facts.task_seconds)}, queries waited for the driver for {seconds(facts.query_seconds)}, and no "
        f"query ran for {seconds(idle)}."
    )


def scope(facts: Facts) -> str:
    """Return a sentence about what was read."""
    release = f" of Spark {facts.spark_version}" if facts.spark_version else ""
    return (
        f"Read {show_count(facts.files, 'file')}{release}, {show_bytes(facts.bytes)}: "
        f"{show_count(facts.queries, 'query', 'queries')}, {show_count(facts.stages, 'stage')}, "
        f"{show_count(facts.tasks, 'task')}."
    )


def no_problem(diagnosis: Diagnosis) -> str:
    """Return the sentence about an application without findings."""
    return f"No problem that costs more than {seconds(diagnosis.threshold)}."


def title(finding: Finding, facts: Facts) -> str:
    """Return the headline of a finding: its kind, lost time and line."""
    percentage = f" ({finding.seconds / facts.seconds:.0%} of the run)" if facts.seconds else ""
    return f"{finding.kind}: about {seconds(finding.seconds)} lost{percentage}, {finding.line}"


def details(finding: Finding) -> list[tuple[str, str]]:
    """Return the other lines of a finding: a name and a text each."""
    repeats = f" (the worst of {finding.repeats})" if finding.repeats > 1 else ""
    return [
        ("where", finding.subject + repeats),
        ("problem", finding.problem),
        ("with Penstock", finding.decision),
        ("remedy", finding.remedy),
    ]


def render(diagnosis: Diagnosis) -> RenderableType:
    """Return a diagnosis for a console of the library rich. Texts of the log are not interpreted as markup."""
    return Group(*_blocks(diagnosis))


def _blocks(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    facts = diagnosis.facts
    yield Text(summary(facts))
    yield Text(scope(facts), style="dim")
    for note in facts.notes:
        yield Text(note, style="yellow")
    yield Text()
    if not diagnosis.findings:
        yield Text(no_problem(diagnosis), style="green")
    for number, finding in enumerate(diagnosis.findings, 1):
        yield Text(f"{number}. {title(finding, facts)}", style="bold")
        for name, text in details(finding):
            yield Padding(Text.assemble((f"{name}: ", "cyan"), text), (0, 0, 0, 3))
    if diagnosis.findings:
        yield Text()
        yield Text(f"Problems that cost less than {seconds(diagnosis.threshold)} are not listed.", style="dim")
