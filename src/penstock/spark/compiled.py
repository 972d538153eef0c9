"""The package's Java classes: compiled when the wheel was built, or else when first used; tasks get them, too.

A wheel has the classes in ``java/penstock-spark4.3.jar``, compiled with Spark 4.3. On another release of Spark, and
where the package is used from its sources, the Janino inside Spark compiles them, see `CompiledClasses`.

The sources are written for both: Janino knows neither lambdas nor the types of elements, so elements are cast, and
collections are declared such that ``javac -Xlint:all`` takes no cast for redundant.
"""

from __future__ import annotations

import tempfile
import threading
import zipfile
from atexit import register
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_JAVA = resources.files("penstock.spark").joinpath("java")
_LOCK = threading.RLock()
_APPLICATIONS: dict[str, JavaClasses] = {}
"""The classes of the running application; executors need each of them once."""


def helper(bridge: Bridge, name: str, *, on_executors: bool = False) -> Any:
    """Return the one object of a class without state; see `new_instance`."""
    with _LOCK:
        return _classes(bridge).helper(bridge, name, on_executors=on_executors)


def new_instance(bridge: Bridge, name: str, *, on_executors: bool = True) -> Any:
    """Return a new object of a class whose source is ``java/NAME.java``.

    Parameters
    ----------
    name
        The class.
    on_executors
        Whether tasks need it, too.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        If it does not compile against the running Spark.
    """
    with _LOCK:
        return _classes(bridge).new_instance(bridge, name, on_executors=on_executors)


def shipped_jar(version: tuple[int, int]) -> Path | None:
    """Return the jar with the classes for a release of Spark, None if this package has none."""
    jar = _JAVA.joinpath(f"penstock-spark{version[0]}.{version[1]}.jar")
    return _FILES.enter_context(resources.as_file(jar)) if jar.is_file() else None


_FILES = ExitStack()
register(_FILES.close)


class _Origin(Protocol):
    """Where classes come from."""

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a class; let tasks have it, too, if they need it."""
        ...


class JavaClasses:
    """The classes in one application.

    Parameters
    ----------
    origin
        Where they come from.
    """

    def __init__(self, origin: _Origin) -> None:
        self._origin = origin
        self._classes: dict[str, Any] = {}
        self._helpers: dict[str, Any] = {}

    def helper(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return the one object of a class."""
        if name not in self._helpers:
            self._helpers[name] = self.new_instance(bridge, name, on_executors=on_executors)
        return self._helpers[name]

    def new_instance(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a new object of a class."""
        if name not in self._classes:
            self._classes[name] = self._origin.load(bridge, name, on_executors=on_executors)
        nothing = bridge.new_array("java.lang.Class", [])
        return self._classes[name].getDeclaredConstructor(nothing).newInstance(bridge.new_array("java.lang.Object", []))


class ShippedClasses:
    """Classes in a jar, which were compiled when the wheel was built."""

    def __init__(self, bridge: Bridge, jar: Path) -> None:
        self._jar = str(jar)
        self._is_sent = False
        urls = bridge.new_array("java.net.URL", [bridge.find("java.io.File")(self._jar).toURI().toURL()])
        self._loader = bridge.find("java.net.URLClassLoader")(urls, _spark_classes(bridge))

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a class; executors get the jar with the first class that they need."""
        if on_executors and not self._is_sent:
            bridge.spark.sparkContext._jsc.addJar(self._jar)
            self._is_sent = True
        return self._loader.loadClass(f"penstock.{name}")


class CompiledClasses:
    """Classes that Janino compiles.

    One that does not fit the running Spark keeps all others of its class loader from being compiled. So those of tasks,
    of which some are for new releases only, have a class loader each.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._sources = bridge.find(f"{_JANINO_FILES}.MapResourceFinder")()
        for source in _JAVA.iterdir():
            if source.name.endswith(".java"):
                self._sources.addResource(f"penstock/{source.name}", source.read_text())
        self._driver = self._compiler(bridge, bridge.find("java.util.HashMap")())

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a class; executors get it in a jar, together with those that it uses."""
        if not on_executors:
            return self._driver.loadClass(f"penstock.{name}")
        codes = bridge.find("java.util.HashMap")()
        found = self._compiler(bridge, codes).loadClass(f"penstock.{name}")
        jar = Path(tempfile.mkdtemp(prefix="penstock-")) / f"{name}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for file in codes:
                archive.writestr(str(file), bytes(codes[file]))
        bridge.spark.sparkContext._jsc.addJar(str(jar))
        return found

    def _compiler(self, bridge: Bridge, codes: Any) -> Any:
        """Return a class loader that compiles, and keeps the classes in a map by the names of their files."""
        none_before = bridge.find(f"{_JANINO_FILES}.MapResourceFinder")()
        new_ones = bridge.find(f"{_JANINO_FILES}.MapResourceCreator")(codes)
        return bridge.find("org.codehaus.janino.CachingJavaSourceClassLoader")(
            _spark_classes(bridge), self._sources, "UTF-8", none_before, new_ones
        )


_JANINO_FILES = "org.codehaus.commons.compiler.util.resource"


def _spark_classes(bridge: Bridge) -> Any:
    return bridge.find("org.apache.spark.util.Utils").getContextOrSparkClassLoader()


def _classes(bridge: Bridge) -> JavaClasses:
    if bridge.application not in _APPLICATIONS:
        _APPLICATIONS.clear()  # the one before was stopped
        jar = shipped_jar(bridge.version)
        origin = CompiledClasses(bridge) if jar is None else ShippedClasses(bridge, jar)
        _APPLICATIONS[bridge.application] = JavaClasses(origin)
    return _APPLICATIONS[bridge.application]
