"""The files of the monitoring example are valid, and name only metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from penstock.metrics import instruments
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "penstock-alerts.yml").read_text())
DASHBOARD = json.loads((FOLDER / "penstock-dashboard.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
EXPRESSIONS = [rule["expr"] for rule in RULES]
EXPRESSIONS += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS += [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
METRICS = set(re.findall(r"^\| `(penstock_\w+)`", REFERENCE, re.MULTILINE))
HISTOGRAM_SUFFIX = re.compile(r"(?<=_seconds)_(bucket|sum|count)$")


def names_of(expression: str) -> set[str]:
    """Return the metrics that a query names, without the suffixes of histograms."""
    return {HISTOGRAM_SUFFIX.sub("", name) for name in re.findall(r"\bpenstock_\w+", expression)}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_queries_name_existing_metrics(expression: str) -> None:
    assert names_of(expression) <= METRICS
    assert expression.count("(") == expression.count(")")
    assert names_of(expression) or expression.startswith("up{")


def test_dashboard_shows_every_metric() -> None:
    panels = " ".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    assert names_of(panels) == METRICS


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_alerts_are_complete(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description"}


def test_labels_of_queries_exist() -> None:
    labels = {f"{instrument.label}" for instrument in vars(instruments).values() if hasattr(instrument, "label")}
    grouped = {
        name.strip() for text in EXPRESSIONS for by in re.findall(r"by \(([^)]*)\)", text) for name in by.split(",")
    }
    assert grouped <= labels | {"instance", "le"}


def test_prometheus_reads_the_rules() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert all((FOLDER / name).exists() for name in config["rule_files"])
    assert [job["job_name"] for job in config["scrape_configs"]] == ["penstock"]
