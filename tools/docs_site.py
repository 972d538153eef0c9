"""Build the site of the docs with Sphinx, from the pages as repository hosts show them.

Pages link to each other, and to files of the source, by relative paths. The site has the same folders, so links between
pages stay. Links to other files lead to the repository at PENSTOCK_URL, or become plain text without it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
PAGES = (":(glob)*.md", "docs/*", "bench/*.md", "bench/results/*", "examples/*.md")
SHOWN = {".md", ".svg", ".png"}
NAVIGATION = {
    "README.md": [
        "docs/README",
        "bench/README",
        "examples/README",
        "CONTRIBUTING",
        "RELEASING",
        "CHANGELOG",
        "SECURITY",
    ],
    "docs/README.md": [
        "tutorials/*",
        "how-to/*",
        "integrations/*",
        "explanation/*",
        "reference/*",
        "reference/api/README",
        "architecture",
        "glossary",
    ],
    "docs/reference/api/README.md": ["penstock*"],
    "bench/README.md": ["results/*", "results/*/*"],
}
"""The pages below a page in the navigation; patterns select all pages that match."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?!https?://|#)[^)#\s]+)(#[^)]*)?\)")


def adapt_links(text: str, page: Path, pages: set[Path], home: str | None) -> str:
    """Return a page whose links to files that the site does not have lead to the repository, or are plain text.

    >>> adapt_links("[a](b.md#c) and [d](../src/e.py)", Path("docs/f.md"), {Path("docs/b.md")}, None)
    '[a](b.md#c) and d'
    >>> adapt_links("[d](../src/e.py)", Path("docs/f.md"), set(), "https://example.org/penstock")
    '[d](https://example.org/penstock/blob/main/src/e.py)'
    """

    def replace(link: re.Match[str]) -> str:
        label, path, anchor = link.groups(default="")
        linked = Path(os.path.normpath(page.parent / path))
        if linked in pages:
            return link.group()
        if linked / "README.md" in pages:
            return f"[{label}]({path.rstrip('/')}/README.md{anchor})"
        return f"[{label}]({home}/blob/main/{linked}{anchor})" if home else label

    return _LINK.sub(replace, text)


def copy_sources(target: Path, home: str | None) -> None:
    """Copy the pages and pictures that the repository tracks to an empty folder, with the navigation."""
    shutil.rmtree(target, ignore_errors=True)
    command = ["git", "ls-files", "--", *PAGES]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {Path(name) for name in listing.stdout.splitlines() if Path(name).suffix in SHOWN}
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name.suffix != ".md":
            shutil.copy(ROOT / name, target / name)
            continue
        text = adapt_links((ROOT / name).read_text(encoding="utf-8"), name, names, home)
        if not re.search(r"^# ", text, re.MULTILINE):  # tables of results
            text = f"# {name.stem}\n\n{text}"
        if below := NAVIGATION.get(str(name)):
            text += "\n```{toctree}\n:hidden:\n:glob:\n\n" + "\n".join(below) + "\n```\n"
        (target / name).write_text(text, encoding="utf-8")


def settings(site: str, version: str) -> dict[str, Any]:
    """Return the settings of Sphinx; `site` is the address of the folder of all versions, or empty."""
    theme: dict[str, Any] = {
        "header_links_before_dropdown": 3,
        "show_prev_next": False,
        "secondary_sidebar_items": ["page-toc"],
    }
    if site:
        theme["switcher"] = {"json_url": f"{site}/switcher.json", "version_match": version}
        theme["check_switcher"] = False  # the list is written after the first version
        theme["navbar_end"] = ["version-switcher", "theme-switcher", "navbar-icon-links"]
    return {
        "project": "Penstock",
        "version": version,
        "html_title": "Penstock",
        "root_doc": "README",
        "extensions": ["myst_parser"],
        "myst_heading_anchors": 4,  # links to headings as on repository hosts
        "html_theme": "pydata_sphinx_theme",
        "html_theme_options": theme,
        "html_copy_source": False,
        "suppress_warnings": ["misc.highlighting_failure"],  # templates in SQL blocks
    }


def build(target: Path, version: str) -> int:
    """Build the site of a version into `target`/`version`; return 0, or 1 if a link is broken or a page unlisted.

    Also list all versions in `target`, for their menu.
    """
    sources, output = target.parent / "site-sources", target / version
    copy_sources(sources, os.environ.get("PENSTOCK_URL", "").rstrip("/") or None)
    shutil.rmtree(output, ignore_errors=True)
    site = os.environ.get("PENSTOCK_SITE", "").rstrip("/")
    sphinx = Sphinx(
        sources,
        None,
        output,
        target.parent / "site-cache",
        "html",
        confoverrides=settings(site, version),
        status=None,
        freshenv=True,
        warningiserror=True,
    )
    sphinx.build()
    versions = sorted(folder.name for folder in target.iterdir() if (folder / "README.html").exists())
    entries = [{"version": name, "url": f"{site}/{name}/README.html"} for name in versions]
    (target / "switcher.json").write_text(json.dumps(entries, indent=2))
    (target / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={version}/README.html">\n')
    return sphinx.statuscode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="folder of the sites of all versions")
    parser.add_argument("--version", default="latest", help="name of the version, which is a folder of the site")
    arguments = parser.parse_args()
    status = build(arguments.target.resolve(), arguments.version)
    print(f"{arguments.target / arguments.version / 'README.html'}")
    sys.exit(status)
