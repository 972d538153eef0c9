"""Build hook of hatchling (`pyproject.toml`) that adds the compiled Java classes to the wheel."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JavaClasses(BuildHookInterface):
    """Compiles the classes against the Spark in SPARK_HOME, or else the PySpark of the build environment."""

    def initialize(self, version: Any, build_data: Any) -> None:
        """Add the jar to the wheel; if it cannot be built, the classes are compiled at run time."""
        if version == "editable":
            return
        java = runpy.run_path(str(Path(self.root, "tools", "java_classes.py")))
        self.folder = tempfile.TemporaryDirectory()
        try:
            jar = java["make_jar"](Path(self.folder.name))
        except java["CannotCompileError"] as error:
            self.app.display_warning(f"The wheel gets no compiled Java classes: {error}.")
            return
        build_data["force_include"][str(jar)] = f"penstock/spark/java/{jar.name}"

    def finalize(self, version: Any, build_data: Any, artifact_path: Any) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            self.folder.cleanup()
