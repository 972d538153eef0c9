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
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_JAVA = resources.files("penstock.spark").joinpath("java")
_LOCK = threading.RLock()
_JVMS: WeakKeyDictionary[Any, JavaClasses] = WeakKeyDictionary()
"""The classes of a JVM. They outlive a Spark application: to py4j, classes of one name are one class."""


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


def _classes(bridge: Bridge) -> JavaClasses:
    if bridge._gateway not in _JVMS:
        jar = shipped_jar(bridge.version)
        _JVMS[bridge._gateway] = JavaClasses(CompiledClasses(bridge) if jar is None else ShippedClasses(bridge, jar))
    return _JVMS[bridge._gateway]


def shipped_jar(version: tuple[int, int]) -> Path | None:
    """Return the jar with the classes for a release of Spark, None if this package has none."""
    jar = _JAVA.joinpath(f"penstock-spark{version[0]}.{version[1]}.jar")
    return _FILES.enter_context(resources.as_file(jar)) if jar.is_file() else None


_FILES = ExitStack()
register(_FILES.close)


@dataclass(frozen=True, slots=True)
class LoadedClass:
    """A class, and the jar by which executors get it; none for a class that only the driver needs."""

    handle: Any
    jar: Path | None


class _Origin(Protocol):
    """Where classes come from."""

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class."""
        ...


class JavaClasses:
    """The classes in one JVM.

    Parameters
    ----------
    origin
        Where they come from.
    """

    def __init__(self, origin: _Origin) -> None:
        self._origin = origin
        self._loaded: dict[str, LoadedClass] = {}
        self._helpers: dict[str, Any] = {}

    def helper(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return the one object of a class."""
        if name not in self._helpers:
            self._helpers[name] = self._new(bridge, name, on_executors=on_executors)
        self._send(bridge, name)
        return self._helpers[name]

    def new_instance(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a new object of a class."""
        found = self._new(bridge, name, on_executors=on_executors)
        self._send(bridge, name)
        return found

    def _new(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._origin.load(bridge, name, on_executors=on_executors)
        maker = self._loaded[name].handle.getDeclaredConstructor(bridge.new_array("java.lang.Class", []))
        return maker.newInstance(bridge.new_array("java.lang.Object", []))

    def _send(self, bridge: Bridge, name: str) -> None:
        """Let the tasks of a session have a class."""
        jar = self._loaded[name].jar
        if jar is not None:
            self.helper(bridge, "Artifacts", on_executors=False).addJar(bridge.session, str(jar))


class ShippedClasses:
    """Classes in a jar, which were compiled when the wheel was built."""

    def __init__(self, bridge: Bridge, jar: Path) -> None:
        self._jar = jar
        urls = bridge.new_array("java.net.URL", [bridge.find("java.io.File")(str(jar)).toURI().toURL()])
        self._loader = bridge.find("java.net.URLClassLoader")(urls, _spark_classes(bridge))

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class."""
        del bridge
        return LoadedClass(self._loader.loadClass(f"penstock.{name}"), self._jar if on_executors else None)


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

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class; its jar has those that it uses, too."""
        if not on_executors:
            return LoadedClass(self._driver.loadClass(f"penstock.{name}"), None)
        codes = bridge.find("java.util.HashMap")()
        found = self._compiler(bridge, codes).loadClass(f"penstock.{name}")
        jar = Path(_FILES.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))) / f"{name}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for file in codes:
                archive.writestr(str(file), bytes(codes[file]))
        return LoadedClass(found, jar)

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
