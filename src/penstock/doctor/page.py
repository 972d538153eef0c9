"""A diagnosis as a page in a single file, which loads nothing."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

import penstock
from penstock.doctor import report
from penstock.web import formatting

if TYPE_CHECKING:
    from penstock.doctor.diagnosis import Diagnosis

_templates = Environment(
    loader=PackageLoader("penstock.doctor"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
_templates.filters |= {"seconds": formatting.seconds, "percent": formatting.percent, "count": formatting.count}


def page(diagnosis: Diagnosis) -> str:
    """Return the page as HTML, with the stylesheet of the web page. The template escapes all texts."""
    style = resources.files("penstock.web").joinpath("static", "style.css").read_text(encoding="utf-8")
    return _templates.get_template("diagnosis.html").render(
        diagnosis=diagnosis,
        facts=diagnosis.facts,
        report=report,
        style=Markup(style),  # noqa: S704 - a file of this package
        version=penstock.__version__,
    )
