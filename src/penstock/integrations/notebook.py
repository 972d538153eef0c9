"""The extension of IPython: ``%load_ext penstock``, and the cell magic ``%%penstock``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from penstock.base.tables import html_of_text
from penstock.engine.registry import native_engine
from penstock.entry.observer import page_address
from penstock.extension import disable, enable
from penstock.integrations.activity import Activity, ActivityMonitor
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@dataclass(frozen=True, repr=False)
class CellReport:
    """What ran in a cell of a notebook."""

    activity: Activity

    def __repr__(self) -> str:
        return "\n\n".join([*map(str, self.activity.jobs), *filter(None, [self.activity.note])])

    def _repr_html_(self) -> str:
        jobs = (
            f"<details open><summary>{escape(f'{job.name}: {job.summary}')}</summary>{job._repr_html_()}</details>"
            for job in self.activity.jobs
        )
        return "".join(jobs) + html_of_text(self.activity.note)


def load(shell: InteractiveShell) -> None:
    """Enable Penstock in the active Spark session, or in a new local session, and register ``%%penstock``."""
    spark = enable()
    shell.register_magic_function(_cell_magic(shell), "cell", "penstock")  # type: ignore[arg-type]
    engine, page = native_engine(), page_address()
    lines = [
        f"Penstock runs the queries of this Spark {spark.version} session"
        + ("." if engine is None else f", with {engine.name} where it returns the same rows."),
        "Start a cell with %%penstock to see its decisions. %unload_ext penstock turns Penstock off.",
        *([f"All jobs: {page}"] if page else []),
    ]
    print("\n".join(lines))  # noqa: T201 - the output of the magic


def unload(shell: InteractiveShell) -> None:
    """Let Spark run the queries of the active session again."""
    shell.magics_manager.magics["cell"].pop("penstock", None)
    disable()
    print("Spark runs all queries of this session itself.")  # noqa: T201 - the output of the magic


def _cell_magic(shell: InteractiveShell) -> Callable[[str, str], None]:
    def penstock(line: str, cell: str) -> None:
        """Run a cell, then show the jobs that ran, their steps, and the reasons of their decisions."""
        from IPython.display import display

        del line
        monitor = ActivityMonitor(Bridge(embedded_session()))  # the current session, as Spark may have been restarted
        result = shell.run_cell(cell, store_history=False)  # type: ignore[no-untyped-call]
        display(CellReport(monitor.activity()))  # type: ignore[no-untyped-call]
        error = result.error_before_exec or result.error_in_exec
        if error is not None:  # the cell has failed, so "run all" stops; its traceback is shown already
            error._render_traceback_ = list
            raise error

    return penstock
