"""Small words of the bridge to the JVM: Scala collections, options, companions, and who may use them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

from penstock.errors import SessionError
from penstock.spark import compiled
from penstock.spark.handles import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession

SUPPORTED = ((4, 0), (4, 3))
"""The oldest and the newest Spark release that the package is tested with."""


LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
PHYSICAL = "org.apache.spark.sql.catalyst.plans.physical."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
EXECUTION = "org.apache.spark.sql.execution."


PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_FEW = 4
"""So many elements of a ``Seq`` go over in one call."""


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has its driver's JVM here: one of Spark Connect has not."""
    return hasattr(spark, "_jsparkSession")


class Bridge:
    """The JVM behind a classic Spark session.

    Parameters
    ----------
    spark
        A classic session.

    Raises
    ------
    SessionError
        If it is a Spark Connect session, Spark's version is not supported, or PySpark does not pin threads.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise SessionError.connect()
        found = re.match(r"(\d+)\.(\d+)", spark.version)
        self.version = (int(found[1]), int(found[2])) if found else (0, 0)
        if not SUPPORTED[0] <= self.version <= SUPPORTED[1]:
            raise SessionError.unsupported_version(spark.version)
        self.spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        if not isinstance(self._gateway, ClientServer):
            raise SessionError.not_pinned()
        self._companions: dict[str, Any] = {}
        self._helpers: dict[str, Any] = {}

    @property
    def session(self) -> Session:
        """The session as what others hold; made when it is asked for, as it holds the bridge."""
        return Session(self, self.spark._jsparkSession)

    def owns(self, df: DataFrame) -> bool:
        """Whether a DataFrame belongs to this session."""
        return hasattr(df, "_jdf") and bool(df._jdf.sparkSession().equals(self.session._handle))

    def find(self, name: str) -> Any:
        """Return a class by its full name.

        Nothing is asked for it: py4j would ask for ``org``, ``org.apache`` and so on, and for each the JVM looks
        into all of Spark's jars.
        """
        return JavaClass(name, self._gateway._gateway_client)

    def companion(self, name: str) -> Any:
        """Return a Scala object by its full name, such as the companion of a class."""
        if name not in self._companions:
            self._companions[name] = self.find(name + "$").__getattr__("MODULE$")
        return self._companions[name]

    @cached_property
    def none(self) -> Any:
        """Scala's ``None``."""
        return self.find("scala.Option").empty()

    @cached_property
    def application(self) -> str:
        """The id of the Spark application."""
        return str(self.spark.sparkContext.applicationId)

    def helper(self, name: str, *, on_executors: bool = False) -> Any:
        """Return the object of a Java class of this package, which does in one call what would take many.

        Parameters
        ----------
        name
            The class; its source is ``java/NAME.java``.
        on_executors
            Whether tasks need it, too.
        """
        if name not in self._helpers:
            self._helpers[name] = compiled.helper(self, name, on_executors=on_executors)
        return self._helpers[name]

    def seq(self, items: Iterable[Any]) -> Any:
        """Return a Scala ``Seq``."""
        found = list(items)
        return self.helper("ScalaValues").seq(*found) if len(found) <= _FEW else self.find(PYTHON_UTILS).toSeq(found)

    def new_array(self, class_name: str, items: Iterable[Any]) -> Any:
        """Return a Java array of objects."""
        found = list(items)
        array = self._gateway.new_array(self.find(class_name), len(found))
        for i, item in enumerate(found):
            array[i] = item
        return array

    def invoke(self, thing: Any, name: str, *arguments: Any) -> Any:
        """Call a method that is not public; there must be one of that name."""
        (method,) = (method for method in thing.getClass().getDeclaredMethods() if method.getName() == name)
        method.setAccessible(True)
        return method.invoke(thing, self.new_array("java.lang.Object", arguments))

    def some(self, value: Any) -> Any:
        """Return a Scala ``Some``."""
        return self.find("scala.Option").apply(value)

    def some_long(self, value: int) -> Any:
        """Return an ``Option[Long]``; the bridge would turn a small Python number into an ``Integer``."""
        longs = self.new_array("long", [value])
        return self.find("scala.collection.immutable.ArraySeq").unsafeWrapArray(longs).headOption()


_FRAMES_OF_A_CALL = 6
"""Between the place where a thread waits for the JVM, and the bridge's own code."""


def waits_for_jvm(frame: FrameType) -> bool:
    """Whether a thread that stands at a frame waits for the JVM."""
    here: FrameType | None = frame
    for _ in range(_FRAMES_OF_A_CALL):
        if here is None:
            return False
        if str(here.f_globals.get("__name__")).startswith("py4j."):
            return True
        here = here.f_back
    return False


def items(scala_seq: Any) -> list[Any]:
    """Return the elements of a Scala ``Seq``."""
    return [scala_seq.apply(i) for i in range(scala_seq.size())]


def children(plan: Any) -> list[Any]:
    """Return the children of a tree node (a plan or an expression)."""
    return items(plan.children())


def class_name(thing: Any) -> str:
    """Return the simple name of an object's class.

    Case classes, which nearly all plans and expressions are, tell it in one call (``Product.productPrefix``).
    """
    try:
        return str(thing.productPrefix())
    except Py4JError:
        return str(thing.getClass().getSimpleName())


def option(value: Any) -> Any | None:
    """Return what a Scala ``Option`` holds, or None."""
    return value.get() if value.isDefined() else None


def lowered(options: Any) -> dict[str, str]:
    """Return a Scala map of options, their names in small letters."""
    return {str(pair._1()).lower(): str(pair._2()) for pair in items(options.toSeq())}


def root_cause(error: BaseException) -> str:
    """Return what the innermost exception of the JVM says, or the error's own text."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if thrown is None:
        return str(error)
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.toString())


def with_fields(bridge: Bridge, case_class: Any, *implicit: Any, **changes: Any) -> Any:
    """Return a copy of a case class object; works for whatever fields this Spark version gives it.

    Parameters
    ----------
    case_class
        The object.
    implicit
        The arguments of a second parameter list.
    changes
        The fields that are new.
    """
    values = bridge.seq([*changes.values(), *implicit])
    return bridge.helper("ScalaValues").copied(case_class, bridge.seq(changes), values)
