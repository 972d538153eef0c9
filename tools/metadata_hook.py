"""Metadata hook of hatchling (`pyproject.toml`) that adapts the README and adds the URLs of the package.

A package index shows only the README, so pictures and links need absolute URLs. The publisher sets PENSTOCK_URL to the
repository, such as ``https://example.org/penstock``; files are below ``blob/main`` and pictures below ``raw/main``, as
on GitHub. Without PENSTOCK_URL, pictures are removed and links become plain text.
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
    """Return a README with absolute URLs, or without pictures and links if `home`, the repository's URL, is None."""
    if home is None:
        lines = (line for line in text.splitlines() if not line.startswith(("![", "| ![")))
        return _LINK.sub(r"\1", _PICTURE.sub("", "\n".join(lines)))
    return _LINK.sub(rf"[\1]({home}/blob/main/\2)", _PICTURE.sub(rf"![\1]({home}/raw/main/\2)", text))


def project_urls(home: str | None) -> dict[str, str]:
    """Return the URLs of the package by label."""
    if home is None:
        return {}
    paths = {"Documentation": "blob/main/docs/README.md", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
    return {"Source": home} | {name: f"{home}/{path}" for name, path in paths.items()}


class PackageMetadata(MetadataHookInterface):
    """Adds README and URLs to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add README and URLs to a package's metadata."""
        home = os.environ.get("PENSTOCK_URL", "").rstrip("/") or None
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_index(text, home)}
        metadata["urls"] = project_urls(home)
