"""How the results of a specification are fetched or written, on plain Spark and with Penstock."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import penstock
from penstock.connectors import FileSink
from penstock.errors import SinkError
from penstock.results import ResultSink
from tests.generated.code import Spec
from tests.generated.compare import Outcome, condition_of, plain


def fetched(df):
    return [(field.name, field.dataType.simpleString()) for field in df.schema], [plain(row) for row in df.collect()]


class Context:
    """Keeps where files of results go.

    Parameters
    ----------
    spark, folder
        The session, and a folder that is emptied after every specification.
    """

    def __init__(self, spark, folder: Path) -> None:
        self.spark = spark
        self._folder = folder

    def plain(self, spec: Spec, frames: list) -> Outcome:
        """Run all results on plain Spark, one after the other."""
        given = []
        for result in spec["results"]:
            df = frames[result["of"]]
            if result["kind"] == "served":
                given += self._written(df, result, frames)
                continue
            if result["kind"] != "files":
                given.append(fetched(df))
                continue
            target = Target(self.spark, self._folder, result, frames)
            target.save(df)
            given += target.read()
        return _outcome(spec, given, told_once=True)

    def _written(self, df, result: dict, frames: list, config: dict | None = None) -> list:
        """Write a result by Spark's writer; return the error, and what lies there now."""
        target = Target(self.spark, self._folder, result, frames)
        with nullcontext() if config is None else penstock.enabled(self.spark, config=config):
            error = condition_of_run(lambda: target.save(df))
        found: list = []
        missing = condition_of_run(lambda: found.extend(target.read()))
        return [([("error", "string")], [(error,)]), ([("missing", "string")], [(missing,)]), *found]

    def errors(self, spec: Spec, frames: list) -> frozenset[str]:
        """Return the errors of all results on plain Spark, each run by itself."""
        found = set()
        for result in spec["results"]:
            try:
                frames[result["of"]].collect()
            except Exception as error:
                found.add(condition_of(error))
        return frozenset(found)

    def penstock(self, spec: Spec, frames: list, env, config: dict, limit: float) -> Outcome:
        """Run all results as one job of Penstock; one that a served session writes by itself."""
        if spec["results"][0]["kind"] == "served":
            (result,) = spec["results"]
            return _outcome(spec, self._written(frames[result["of"]], result, frames, config))
        places = []
        for result in spec["results"]:
            df = frames[result["of"]]
            if result["kind"] != "files":
                places.append(ResultSink("collect", fetched))
                env.write(df, places[-1])
                continue
            target = Target(self.spark, self._folder, result, frames)
            places.append(target)
            env.write(
                df, FileSink(target.path, result["format"], mode=result["mode"], partition_by=result["partition_by"])
            )
        try:
            env.execute_async("generated").wait(limit)
        except SinkError as error:
            if "exists already" in str(error):
                return Outcome(error="PATH_ALREADY_EXISTS", text=str(error))
            raise
        given = []
        for place in places:
            given += [place.value] if isinstance(place, ResultSink) else place.read()
        return _outcome(spec, given)


def _outcome(spec: Spec, given: list, *, told_once: bool = False) -> Outcome:
    ordered = [result["kind"] == "ordered" for result in spec["results"]]
    ordered += [False] * (len(given) - len(ordered))
    once = {result["once"] for result in spec["results"] if "once" in result}
    for name in once:  # a value that all results of one job must share, whatever it is
        places = [[column for column, _ in schema].index(name) for schema, _ in given]
        values = {row[at] for at, (_, rows) in zip(places, given, strict=True) for row in rows}
        told = "one" if told_once or len(values) <= 1 else "several"
        given = [
            (schema, [(*row[:at], told, *row[at + 1 :]) for row in rows])
            for at, (schema, rows) in zip(places, given, strict=True)
        ]
    return Outcome(tuple(rows for _, rows in given), tuple(schema for schema, _ in given), tuple(ordered))


def condition_of_run(run: Callable[[], object]) -> str:
    """Return the condition of the error that a call raises, an empty text if it raises none."""
    try:
        run()
    except Exception as error:
        return condition_of(error)
    return ""


class Target:
    """A folder that a result is written to; what stands there before is always written by plain Spark."""

    def __init__(self, spark, folder: Path, result: dict, frames: list) -> None:
        self.path = str(folder / uuid.uuid4().hex)
        self._spark, self._result = spark, result
        self._cached = None
        if "first" in result:
            writer = frames[result["first"]].write.format(result["format"])
            (writer.partitionBy(*result["partition_by"]) if result["partition_by"] else writer).save(self.path)
            if result.get("cached"):
                self._cached = self._reader().cache()
                self._cached.count()

    def save(self, df) -> None:
        """Let Spark write."""
        writer = df.write.format(self._result["format"]).mode(self._result["mode"])
        by = self._result["partition_by"]
        (writer.partitionBy(*by) if by else writer).save(self.path)

    def _reader(self):
        return self._spark.read.format(self._result["format"]).load(self.path)

    def read(self) -> list:
        """Return what lies there now, what a reader that was cached before sees, and whether files are sorted."""
        found = [fetched(self._reader())]
        if self._cached is not None:
            found.append(fetched(self._cached))
        if "sorted_by" in self._result:
            column = self._result["sorted_by"]
            rows = self._reader().selectExpr(column, "_metadata.file_path as file").collect()
            files: dict[str, list] = {}
            for row in rows:
                files.setdefault(row.file, []).append(row[0])
            found.append(([("sorted", "boolean")], [(all(values == sorted(values) for values in files.values()),)]))
        return found
