"""Collects or writes the results of a specification, on plain Spark and with Penstock."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import penstock
from penstock.connectors import FileSink
from penstock.entry.results import ResultSink
from penstock.errors import SinkError
from tests.generated.code import Spec
from tests.generated.compare import Outcome, condition_of, plain


def fetch(df):
    return [(field.name, field.dataType.simpleString()) for field in df.schema], [plain(row) for row in df.collect()]


class Context:
    """The session, and a folder for the files of results, which is emptied after each specification."""

    def __init__(self, spark, folder: Path) -> None:
        self.spark = spark
        self._folder = folder

    def plain(self, spec: Spec, frames: list) -> Outcome:
        """Run all results on plain Spark."""
        outputs = []
        for result in spec["results"]:
            df = frames[result["of"]]
            if result["kind"] == "served":
                outputs += self._write(df, result, frames)
                continue
            if result["kind"] != "files":
                outputs.append(fetch(df))
                continue
            target = Target(self.spark, self._folder, result, frames)
            target.save(df)
            outputs += target.read()
        return _outcome(spec, outputs, is_plain=True)

    def _write(self, df, result: dict, frames: list, config: dict | None = None) -> list:
        """Write a result with Spark's writer, and return the errors of writing and reading, and the written files."""
        target = Target(self.spark, self._folder, result, frames)
        with nullcontext() if config is None else penstock.enabled(self.spark, config=config):
            error = condition_of_run(lambda: target.save(df))
        contents: list = []
        missing = condition_of_run(lambda: contents.extend(target.read()))
        return [([("error", "string")], [(error,)]), ([("missing", "string")], [(missing,)]), *contents]

    def errors(self, spec: Spec, frames: list) -> frozenset[str]:
        """Return the errors of all results on plain Spark, each run separately."""
        conditions = set()
        for result in spec["results"]:
            try:
                frames[result["of"]].collect()
            except Exception as error:
                conditions.add(condition_of(error))
        return frozenset(conditions)

    def penstock(self, spec: Spec, frames: list, env, config: dict, limit: float) -> Outcome:
        """Run all results in a job of Penstock; a served result is written by the session."""
        if spec["results"][0]["kind"] == "served":
            (result,) = spec["results"]
            return _outcome(spec, self._write(frames[result["of"]], result, frames, config))
        sinks = []
        for result in spec["results"]:
            df = frames[result["of"]]
            if result["kind"] != "files":
                sinks.append(ResultSink("collect", fetch))
                env.write(df, sinks[-1])
                continue
            target = Target(self.spark, self._folder, result, frames)
            sinks.append(target)
            env.write(
                df, FileSink(target.path, result["format"], mode=result["mode"], partition_by=result["partition_by"])
            )
        try:
            env.execute_async("generated").wait(limit)
        except SinkError as error:
            if "exists already" in str(error):
                return Outcome(error="PATH_ALREADY_EXISTS", text=str(error))
            raise
        outputs = []
        for sink in sinks:
            outputs += [sink.value] if isinstance(sink, ResultSink) else sink.read()
        return _outcome(spec, outputs)


def _outcome(spec: Spec, outputs: list, *, is_plain: bool = False) -> Outcome:
    ordered = [result["kind"] == "ordered" for result in spec["results"]]
    ordered += [False] * (len(outputs) - len(ordered))
    shared_columns = {result["once"] for result in spec["results"] if "once" in result}
    for (
        name
    ) in shared_columns:  # all results of a job must have the same value in this column, such as the current time
        indexes = [[column for column, _ in schema].index(name) for schema, _ in outputs]
        values = {row[i] for i, (_, rows) in zip(indexes, outputs, strict=True) for row in rows}
        comparison = "same" if is_plain or len(values) <= 1 else "different"
        outputs = [
            (schema, [(*row[:i], comparison, *row[i + 1 :]) for row in rows])
            for i, (schema, rows) in zip(indexes, outputs, strict=True)
        ]
    return Outcome(tuple(rows for _, rows in outputs), tuple(schema for schema, _ in outputs), tuple(ordered))


def condition_of_run(run: Callable[[], object]) -> str:
    """Return the condition of the error that a call raises, or an empty string."""
    try:
        run()
    except Exception as error:
        return condition_of(error)
    return ""


class Target:
    """A folder that a result is written to; plain Spark writes its previous files, if any."""

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
        """Write with Spark's writer."""
        writer = df.write.format(self._result["format"]).mode(self._result["mode"])
        by = self._result["partition_by"]
        (writer.partitionBy(*by) if by else writer).save(self.path)

    def _reader(self):
        return self._spark.read.format(self._result["format"]).load(self.path)

    def read(self) -> list:
        """Return the rows of the folder, the rows of a reader that was cached before, and whether files are sorted."""
        outputs = [fetch(self._reader())]
        if self._cached is not None:
            outputs.append(fetch(self._cached))
        if "sorted_by" in self._result:
            column = self._result["sorted_by"]
            rows = self._reader().selectExpr(column, "_metadata.file_path as file").collect()
            files: dict[str, list] = {}
            for row in rows:
                files.setdefault(row.file, []).append(row[0])
            outputs.append(([("sorted", "boolean")], [(all(values == sorted(values) for values in files.values()),)]))
        return outputs
