"""Manifests conform to the schemas of Kubernetes, and call commands with options that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from penstock.cli.main import main
from tests.support.paths import ROOT

FILES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
VERSION = "1.31"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_manifests_conform_to_the_schemas(path: Path) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_a_wrong_field_is_rejected() -> None:
    deployment = documents(ROOT / "examples" / "kubernetes" / "connect-server.yaml")[1]
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, VERSION, strict=True)


def containers() -> list[dict[str, Any]]:
    specs = [
        document["spec"]["template"]["spec"]
        for path in FILES
        for document in documents(path)
        if "template" in document.get("spec", {})
    ]
    return [container for spec in specs for container in spec["containers"]]


@pytest.mark.parametrize("container", containers(), ids=lambda container: container["command"][-1])
def test_commands_accept_the_options_of_containers(container: dict[str, Any]) -> None:
    assert container["command"][:4] == ["tini", "-g", "--", "penstock"]
    assert isinstance(main, click.Group)
    command = main.commands[container["command"][4]]
    context = click.Context(command)
    command.make_parser(context).parse_args(list(container["args"]))  # raises for an unknown option
