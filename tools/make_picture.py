"""Draw the output of `make demo` as a picture for the README."""

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "images" / "demo.svg"

demo = subprocess.run(
    [Path(sys.executable).parent / "penstock", "demo", "--data", ROOT / "data" / "demo"],
    stdout=subprocess.PIPE,
    text=True,
    check=True,
    env=os.environ | {"FORCE_COLOR": "1"},
)
text = Text.from_ansi(demo.stdout)
WIDTH = 150  # the text of a wider picture is too small to read
console = Console(record=True, width=WIDTH, file=io.StringIO())
console.print(text)
TARGET.write_text(console.export_svg(title="make demo"))
