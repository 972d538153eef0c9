"""The bridge to the JVM, and helpers for Scala collections, options and companion objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

from penstock.errors import SessionError
from penstock.spark.bridge import java_classes
from penstock.spark.bridge.handles import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUPPORTED = ((4, 0), (4, 3))
"""The oldest and the newest supported Spark release."""
LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
PHYSICAL = "org.apache.spark.sql.catalyst.plans.physical."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
EXECUTION = "org.apache.spark.sql.execution."
PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"


def is_classic(spark: SparkSession) -> bool:
    """Whether a session is a classic session, with its JVM in this driver, and not a Spark Connect session."""
    return hasattr(spark, "_jsparkSession")


class Bridge:
    """Access to the JVM of a classic Spark session.

    Raises `SessionError` for a Spark Connect session, an unsupported Spark version, or PySpark without pinned threads.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise SessionError(
                "Penstock needs a classic Spark session; this one is a Spark Connect client",
                cause="Penstock changes query plans inside the driver's JVM, which a Connect client cannot reach",
                hint="run the job in the driver: spark-submit, or SparkSession.builder.master(...) without "
                "spark.remote and with spark.api.mode=classic",
            )
        match = re.match(r"(\d+)\.(\d+)", spark.version)
        self.version = (int(match[1]), int(match[2])) if match else (0, 0)
        if not SUPPORTED[0] <= self.version <= SUPPORTED[1]:
            raise SessionError.unsupported_spark(spark.version)
        self.spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        if not isinstance(self._gateway, ClientServer):
            raise SessionError(
                "Penstock needs pinned threads: a JVM thread for each Python thread",
                cause="PYSPARK_PIN_THREAD is false, so session, settings and job groups of a thread affect other "
                "threads",
                hint="unset PYSPARK_PIN_THREAD, or set it to true, before Spark starts",
            )
        self._companions: dict[str, Any] = {}
        self._helpers: dict[str, Any] = {}

    @property
    def session(self) -> Session:
        """A wrapper of the session; not stored, as wrapper and bridge would form a reference cycle."""
        return Session(self, self.spark._jsparkSession)

    def owns(self, df: DataFrame) -> bool:
        """Whether a DataFrame belongs to this session."""
        return hasattr(df, "_jdf") and bool(df._jdf.sparkSession().equals(self.session._handle))

    def find(self, name: str) -> Any:
        """Return a Java class by its full name, without py4j's slow lookup of each package of the name."""
        return JavaClass(name, self._gateway._gateway_client)

    def companion(self, name: str) -> Any:
        """Return a Scala object by its full name, such as the companion object of a class."""
        if name not in self._companions:
            self._companions[name] = self.find(name + "$").__getattr__("MODULE$")
        return self._companions[name]

    @cached_property
    def none(self) -> Any:
        """Scala's ``None``."""
        return self.find("scala.Option").empty()

    @cached_property
    def empty_seq(self) -> Any:
        """Scala's ``Nil``."""
        return self.seq([])

    @cached_property
    def application(self) -> str:
        """The id of the Spark application."""
        return str(self.spark.sparkContext.applicationId)

    def helper(self, name: str, *, on_executors: bool = False) -> Any:
        """Return the shared instance of the class in ``NAME.java``; `on_executors` says whether tasks use the class."""
        if name not in self._helpers:
            self._helpers[name] = java_classes.helper(self, name, on_executors=on_executors)
        return self._helpers[name]

    def seq(self, items: Iterable[Any]) -> Any:
        """Return a Scala ``Seq``; up to four elements need a single call into the JVM."""
        elements = list(items)
        is_small = len(elements) <= 4
        return self.helper("ScalaValues").seq(*elements) if is_small else self.find(PYTHON_UTILS).toSeq(elements)

    def new_array(self, class_name: str, items: Iterable[Any]) -> Any:
        """Return a Java array of objects."""
        elements = list(items)
        array = self._gateway.new_array(self.find(class_name), len(elements))
        for i, element in enumerate(elements):
            array[i] = element
        return array

    def invoke(self, target: Any, name: str, *arguments: Any) -> Any:
        """Call a method that is not public; the class must have a single method with this name."""
        (method,) = (method for method in target.getClass().getDeclaredMethods() if method.getName() == name)
        method.setAccessible(True)
        return method.invoke(target, self.new_array("java.lang.Object", arguments))

    def some(self, value: Any) -> Any:
        """Return a Scala ``Some``."""
        return self.find("scala.Option").apply(value)


_PY4J_FRAMES = 6
"""Number of innermost frames that are searched for py4j, which calls socket functions to wait for the JVM."""


def waits_for_jvm(frame: FrameType) -> bool:
    """Whether the thread with this innermost frame waits for the JVM."""
    frames = islice(walk_stack(frame), _PY4J_FRAMES)
    return any(str(current.f_globals.get("__name__")).startswith("py4j.") for current, _ in frames)


def items(scala_seq: Any) -> list[Any]:
    """Return the elements of a Scala ``Seq``."""
    return [scala_seq.apply(i) for i in range(scala_seq.size())]


def children(plan: Any) -> list[Any]:
    """Return the children of a tree node (a plan or an expression)."""
    return items(plan.children())


def walk(plan: Any) -> Iterator[Any]:
    """Yield a tree node and all nodes below it, each before its children."""
    yield plan
    for child in children(plan):
        yield from walk(child)


def class_name(instance: Any) -> str:
    """Return the simple name of an object's class; a single call for case classes, such as most plans."""
    try:
        return str(instance.productPrefix())
    except Py4JError:
        return str(instance.getClass().getSimpleName())


def class_names(text: str) -> frozenset[str]:
    """Split a text into names of classes at blanks."""
    return frozenset(text.split())


def option(value: Any) -> Any | None:
    """Return the value of a Scala ``Option``, or None."""
    return value.get() if value.isDefined() else None


def lowercase_keys(options: Any) -> dict[str, str]:
    """Return a Scala map of options as a dict with lower-case keys."""
    return {str(pair._1()).lower(): str(pair._2()) for pair in items(options.toSeq())}


def root_cause(error: BaseException) -> str:
    """Return the message of the innermost JVM exception, or the error's own text."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if thrown is None:
        return str(error)
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.toString())


def with_fields(bridge: Bridge, instance: Any, *implicit: Any, **changes: Any) -> Any:
    """Return a copy of a case class instance with changed fields; `implicit` is `copy`'s second argument list."""
    values = bridge.seq([*changes.values(), *implicit])
    return bridge.helper("ScalaValues").copied(instance, bridge.seq(changes), values)
