"""Makes the readme and the addresses of a package for an index; hatchling runs it, as pyproject.toml says.

An index shows the README alone: pictures and links need whole addresses. Whoever publishes gives the address of the
sources in PENSTOCK_URL, such as ``https://example.org/penstock``; files are expected below ``blob/main`` and pictures
below ``raw/main``, as on GitHub. Without an address, pictures are left out and links become their text, so that nothing
is broken.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\(((?!https?://)[^)]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?!https?://)[^)]+)\)")


def readme_for_index(text: str, home: str | None) -> str:
    """Return a README whose relative pictures and links work elsewhere."""
    if home is None:
        without = (line for line in text.splitlines() if not line.startswith(("![", "| ![")))
        return _LINK.sub(r"\1", _PICTURE.sub("", "\n".join(without)))
    return _LINK.sub(rf"[\1]({home}/blob/main/\2)", _PICTURE.sub(rf"![\1]({home}/raw/main/\2)", text))


def addresses(home: str | None) -> dict[str, str]:
    """Return the addresses of a package."""
    if home is None:
        return {}
    places = {"Documentation": "blob/main/docs/README.md", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
    return {"Source": home} | {name: f"{home}/{place}" for name, place in places.items()}


class Addresses(MetadataHookInterface):
    """Adds the readme and the addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to a package's metadata."""
        home = os.environ.get("PENSTOCK_URL", "").rstrip("/") or None
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_index(text, home)}
        metadata["urls"] = addresses(home)
