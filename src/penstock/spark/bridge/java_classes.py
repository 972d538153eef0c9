"""Penstock's Java classes, compiled when the wheel was built, or at first use.

The sources are in the folders ``java`` of the packages `penstock.spark`, `penstock.duckdb` and so on, with a folder for
each Java package. Classes have unique simple names, by which Python refers to them. A wheel has the classes in
``spark/java/penstock-spark4.3.jar``, compiled with Spark 4.3. For another release of Spark, and if Penstock runs from
its sources, Spark's Janino compiler compiles the classes at first use, see `CompiledClasses`. If tasks use a class
(`on_executors`), executors get a jar that contains it.

Both ``javac`` and Janino compile the sources. Janino supports no lambdas, and generic types only for loop variables. So
other generic results are cast, through ``Object`` where ``javac -Xlint:all`` would report a redundant cast.
"""

from __future__ import annotations

import tempfile
import threading
import zipfile
from atexit import register
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_PACKAGE = resources.files("penstock")
_JANINO_RESOURCE_PACKAGE = "org.codehaus.commons.compiler.util.resource"
_LOCK = threading.RLock()
_FILES = ExitStack()  # deletes temporary files when Python exits
register(_FILES.close)
_JVMS: WeakKeyDictionary[Any, JavaClasses] = WeakKeyDictionary()
"""The classes of each JVM, loaded once for all its Spark applications: py4j identifies classes by name."""


def helper(bridge: Bridge, name: str, *, on_executors: bool = False) -> Any:
    """Return the shared instance of a stateless class, see `new_instance`."""
    with _LOCK:
        return _classes(bridge).helper(bridge, name, on_executors=on_executors)


def new_instance(bridge: Bridge, name: str, *, on_executors: bool = True) -> Any:
    """Return a new instance of the class in ``NAME.java``; raise `Py4JJavaError` if this Spark does not support it."""
    with _LOCK:
        return _classes(bridge).new_instance(bridge, name, on_executors=on_executors)


def _classes(bridge: Bridge) -> JavaClasses:
    if bridge._gateway not in _JVMS:
        jar = shipped_jar(bridge.version)
        _JVMS[bridge._gateway] = JavaClasses(CompiledClasses(bridge) if jar is None else ShippedClasses(bridge, jar))
    return _JVMS[bridge._gateway]


def shipped_jar(version: tuple[int, int]) -> Path | None:
    """Return the jar with the classes for a release of Spark, None if Penstock was installed without such a jar."""
    jar = _PACKAGE.joinpath("spark", "java", f"penstock-spark{version[0]}.{version[1]}.jar")
    return _FILES.enter_context(resources.as_file(jar)) if jar.is_file() else None


LoadedClass = tuple[Any, Path | None]
"""A class, and the jar that executors load it from; None if only the driver needs the class."""


class JavaClasses:
    """The classes in a JVM."""

    def __init__(self, origin: ShippedClasses | CompiledClasses) -> None:
        self._origin = origin
        self._loaded: dict[str, LoadedClass] = {}
        self._helpers: dict[str, Any] = {}

    def helper(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return the shared instance of a class."""
        if name in self._helpers:
            self._send_jar(bridge, name)  # the tasks of this session may not have the jar yet
        else:
            self._helpers[name] = self.new_instance(bridge, name, on_executors=on_executors)
        return self._helpers[name]

    def new_instance(self, bridge: Bridge, name: str, *, on_executors: bool) -> Any:
        """Return a new object of a class."""
        if name not in self._loaded:
            self._loaded[name] = self._origin.load(bridge, name, on_executors=on_executors)
        self._send_jar(bridge, name)
        constructor = self._loaded[name][0].getDeclaredConstructor(bridge.new_array("java.lang.Class", []))
        return constructor.newInstance(bridge.new_array("java.lang.Object", []))

    def _send_jar(self, bridge: Bridge, name: str) -> None:
        _, jar = self._loaded[name]
        if jar is not None:
            self.helper(bridge, "Artifacts", on_executors=False).addJar(bridge.session, str(jar))


class ShippedClasses:
    """Classes in a jar that was compiled when the wheel was built."""

    def __init__(self, bridge: Bridge, jar: Path) -> None:
        self._jar = jar
        with zipfile.ZipFile(jar) as archive:
            self._names = _full_names(archive.namelist())
        urls = bridge.new_array("java.net.URL", [bridge.find("java.io.File")(str(jar)).toURI().toURL()])
        self._loader = bridge.find("java.net.URLClassLoader")(urls, _spark_class_loader(bridge))

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:  # noqa: ARG002
        """Return a class, and the jar if executors need the class."""
        return self._loader.loadClass(self._names[name]), self._jar if on_executors else None


class CompiledClasses:
    """Classes that Janino compiles.

    A class that does not compile with the running Spark breaks the compilation of all other classes of its class
    loader. Some classes for executors need recent releases of Spark, so each class for executors has its own loader.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._sources = bridge.find(f"{_JANINO_RESOURCE_PACKAGE}.MapResourceFinder")()
        sources = dict(_java_sources())
        for path, file in sources.items():
            self._sources.addResource(path, file.read_text())
        self._names = _full_names(sources)
        self._driver_loader = self._compiling_loader(bridge, bridge.find("java.util.HashMap")())

    def load(self, bridge: Bridge, name: str, *, on_executors: bool) -> LoadedClass:
        """Return a class, and its jar (None for driver classes) with all classes of Penstock that the class uses."""
        if not on_executors:
            return self._driver_loader.loadClass(self._names[name]), None
        class_files = bridge.find("java.util.HashMap")()
        compiled = self._compiling_loader(bridge, class_files).loadClass(self._names[name])
        jar = Path(_FILES.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))) / f"{name}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for file in class_files:
                archive.writestr(str(file), bytes(class_files[file]))
        return compiled, jar

    def _compiling_loader(self, bridge: Bridge, class_files: Any) -> Any:
        """Return a class loader that compiles the sources, and adds the class files to a map by file name."""
        no_class_files = bridge.find(f"{_JANINO_RESOURCE_PACKAGE}.MapResourceFinder")()
        output = bridge.find(f"{_JANINO_RESOURCE_PACKAGE}.MapResourceCreator")(class_files)
        return bridge.find("org.codehaus.janino.CachingJavaSourceClassLoader")(
            _spark_class_loader(bridge), self._sources, "UTF-8", no_class_files, output
        )


def _java_sources() -> Iterator[tuple[str, Traversable]]:
    """Yield all Java sources, each with its path such as ``penstock/plans/PlanReader.java``."""
    folders = [(package.joinpath("java"), "") for package in _PACKAGE.iterdir() if package.joinpath("java").is_dir()]
    while folders:
        folder, path = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((entry, f"{path}{entry.name}/"))
            elif entry.name.endswith(".java"):
                yield path + entry.name, entry


def _full_names(files: Iterable[str]) -> dict[str, str]:
    """Return the full names of classes by their simple names, from the paths of their sources or class files."""
    names = (file.rpartition(".")[0].replace("/", ".") for file in files)
    return {name.rpartition(".")[2]: name for name in names}


def _spark_class_loader(bridge: Bridge) -> Any:
    return bridge.find("org.apache.spark.util.Utils").getContextOrSparkClassLoader()
