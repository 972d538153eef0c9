"""The package's Java classes: compiled when the wheel was built, or at first use; executors receive them, too.

A wheel has the classes in ``java/penstock-spark4.3.jar``, compiled with Spark 4.3. On another release of Spark, and if
the package runs from its sources, Spark's own Janino compiles them, see `CompiledClasses`.

The sources suit both compilers: Janino supports neither lambdas nor generic element types, so elements are cast, and
collections are declared such that ``javac -Xlint:all`` reports no redundant cast.
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
"""The classes of each JVM. They outlive a Spark application: py4j identifies classes by name."""


def helper(bridge: Bridge, name: str, *, on_executors: bool = False) -> Any:
    """Return the shared instance of a stateless class; see `new_instance`."""
    with _LOCK:
        return _classes(bridge).helper(bridge, name, on_executors=on_executors)


def new_instance(bridge: Bridge, name: str, *, on_executors: bool = True) -> Any:
    """Return a new instance of the class in ``java/NAME.java``, which is also sent to executors by default.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        If the class does not compile with the running Spark.
    """
    with _LOCK:
        return _classes(bridge).new_instance(bridge, name, on_executors=on_executors)


def _classes(bridge: Bridge) -> JavaClasses:
    if bridge._gateway not in _JVMS:
        jar = shipped_jar(bridge.version)
        _JVMS[bridge._gateway] = JavaClasses(CompiledClasses(bridge) if jar is None else ShippedClasses(bridge, jar))
    return _JVMS[bridge._gateway]


def shipped_jar(version: tuple[int, int]) -> Path | None:
    """Return the jar with the classes for a release of Spark, None if the package has none."""
    jar = _JAVA.joinpath(f"penstock-spark{version[0]}.{version[1]}.jar")
    return _FILES.enter_context(resources.as_file(jar)) if jar.is_file() else None


_FILES = ExitStack()
register(_FILES.close)


@dataclass(frozen=True, slots=True)
class LoadedClass:
    """A class, and the jar that brings it to executors; None if only the driver needs the class."""

    handle: Any
    jar: Path | None


class _Origin(Protocol):
    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class."""
        ...


class JavaClasses:
    """The classes in a JVM."""

    def __init__(self, origin: _Origin) -> None:
        self._origin = origin
        self._loaded: dict[str, LoadedClass] = {}
        self._helpers: dict[str, Any] = {}

    def helper(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return the shared instance of a class."""
        if name not in self._helpers:
            self._helpers[name] = self._new(bridge, name, on_executors=on_executors)
        self._send(bridge, name)
        return self._helpers[name]

    def new_instance(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a new object of a class."""
        instance = self._new(bridge, name, on_executors=on_executors)
        self._send(bridge, name)
        return instance

    def _new(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._origin.load(bridge, name, on_executors=on_executors)
        constructor = self._loaded[name].handle.getDeclaredConstructor(bridge.new_array("java.lang.Class", []))
        return constructor.newInstance(bridge.new_array("java.lang.Object", []))

    def _send(self, bridge: Bridge, name: str) -> None:
        jar = self._loaded[name].jar
        if jar is not None:
            self.helper(bridge, "Artifacts", on_executors=False).addJar(bridge.session, str(jar))


class ShippedClasses:
    """Classes in a jar that was compiled when the wheel was built."""

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

    A class that does not compile with the running Spark breaks the compilation of all other classes of its class
    loader. Some classes of tasks need recent releases, so each has a class loader of its own.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._sources = bridge.find(f"{_JANINO_FILES}.MapResourceFinder")()
        for source in _JAVA.iterdir():
            if source.name.endswith(".java"):
                self._sources.addResource(f"penstock/{source.name}", source.read_text())
        self._driver = self._compiler(bridge, bridge.find("java.util.HashMap")())

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class; its jar includes the classes that it uses."""
        if not on_executors:
            return LoadedClass(self._driver.loadClass(f"penstock.{name}"), None)
        codes = bridge.find("java.util.HashMap")()
        compiled = self._compiler(bridge, codes).loadClass(f"penstock.{name}")
        jar = Path(_FILES.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))) / f"{name}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for file in codes:
                archive.writestr(str(file), bytes(codes[file]))
        return LoadedClass(compiled, jar)

    def _compiler(self, bridge: Bridge, codes: Any) -> Any:
        """Return a class loader that compiles, and stores the class files in a map by file name."""
        existing = bridge.find(f"{_JANINO_FILES}.MapResourceFinder")()
        created = bridge.find(f"{_JANINO_FILES}.MapResourceCreator")(codes)
        return bridge.find("org.codehaus.janino.CachingJavaSourceClassLoader")(
            _spark_classes(bridge), self._sources, "UTF-8", existing, created
        )


_JANINO_FILES = "org.codehaus.commons.compiler.util.resource"


def _spark_classes(bridge: Bridge) -> Any:
    return bridge.find("org.apache.spark.util.Utils").getContextOrSparkClassLoader()
