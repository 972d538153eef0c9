"""The package's few Java classes: compiled by the Janino inside Spark when first used, and sent to the executors."""

from __future__ import annotations

import tempfile
import threading
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_LOCK = threading.Lock()
_LOADED: dict[tuple[str, str], Any] = {}
"""Classes by application and name; executors of one application need a class once."""


def new_instance(bridge: Bridge, name: str, *, on_executors: bool = True) -> Any:
    """Return a new object of a class whose source is ``java/NAME.java``.

    Parameters
    ----------
    name
        The class.
    on_executors
        Whether tasks need it too.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        If it does not compile against the running Spark.
    """
    key = (str(bridge.spark.sparkContext.applicationId), name)
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _load(bridge, name, on_executors=on_executors)
    nothing = bridge.new_array("java.lang.Class", [])
    return _LOADED[key].getDeclaredConstructor(nothing).newInstance(bridge.new_array("java.lang.Object", []))


def _load(bridge: Bridge, name: str, *, on_executors: bool) -> Any:
    source = resources.files("penstock.spark").joinpath("java", f"{name}.java").read_text()
    compiler = bridge.find("org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(bridge.find("org.apache.spark.util.Utils").getContextOrSparkClassLoader())
    compiler.cook(source)
    if on_executors:
        _send(bridge, name, compiler.getBytecodes())
    return compiler.getClassLoader().loadClass(f"penstock.{name}")


def _send(bridge: Bridge, name: str, codes: Any) -> None:
    jar = Path(tempfile.mkdtemp(prefix="penstock-")) / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for class_name in codes:
            archive.writestr(f"{class_name.replace('.', '/')}.class", bytes(codes[class_name]))
    bridge.spark.sparkContext._jsc.addJar(str(jar))
