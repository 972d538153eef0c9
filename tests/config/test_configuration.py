from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Configuration, table_option
from penstock.config.options import (
    DATA_VOLUME_PER_TASK,
    MAX_PARALLELISM,
    PARALLELISM_DEFAULT,
    SCAN_INFER_ENABLED,
    SCAN_PARALLELISM,
    SINK_AUTO_COMPACTION,
    SINK_PARALLELISM,
    SINK_PARTITION_COMMIT,
)
from penstock.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Any:
    path = tmp_path / "penstock.toml"
    path.write_text("""
[parallelism]
default = 4
[execution.batch.adaptive.auto-parallelism]
avg-data-volume-per-task = "32 mb"
""")
    return path


KEY = PARALLELISM_DEFAULT.key
ORIGINS = {
    "arguments": {KEY: 1},
    "spark_conf": {f"spark.penstock.{KEY}": "2"},
    "file": None,
    "environ": {"PENSTOCK_PARALLELISM_DEFAULT": "8"},
}


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        (["arguments", "spark_conf", "file", "environ"], 1),
        (["spark_conf", "file", "environ"], 2),
        (["file", "environ"], 4),
        (["environ"], 8),
        ([], None),
    ],
)
def test_precedence(origins: list[str], expected: int | None, file: Any) -> None:
    values = {origin: file if origin == "file" else ORIGINS[origin] for origin in origins}
    assert Configuration.load(**values).get(PARALLELISM_DEFAULT) == expected


def test_a_file_named_in_the_environment(file: Any) -> None:
    config = Configuration.load(environ={"PENSTOCK_CONFIG": str(file)})
    assert config.integer(DATA_VOLUME_PER_TASK) == 32 << 20
    assert str(file) in config.origin(DATA_VOLUME_PER_TASK)
    assert config.origin(PARALLELISM_DEFAULT) == f"file {file}"
    assert config.origin(MAX_PARALLELISM) == "default"


@pytest.mark.parametrize(
    "options",
    [
        {"arguments": {"paralelism.default": 2}},
        {"spark_conf": {"spark.penstock.paralelism.default": "2"}},
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'parallelism.default'"):
        Configuration.load(**options)


def test_unknown_variables_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_PARALLELISM_DEFAULT"):
        Configuration.load(environ={"PENSTOCK_PARALELISM_DEFAULT": "2"})


def test_other_settings_are_ignored() -> None:
    Configuration.load(spark_conf={"spark.sql.shuffle.partitions": "8"}, environ={"HOME": "/root"})


def test_old_spellings_are_accepted() -> None:
    config = Configuration.load(
        {
            "jobmanager.adaptive-batch-scheduler.max-parallelism": 7,
            "scan.infer-parallelism.enable": False,
            "table.exec.resource.default-parallelism": 5,
        }
    )
    assert config.integer(PARALLELISM_DEFAULT) == 5
    assert config.integer(MAX_PARALLELISM) == 7
    assert not config.flag(SCAN_INFER_ENABLED)


@pytest.mark.parametrize(("text", "message"), [("= 1", "not a TOML file"), (None, "cannot read")])
def test_bad_files(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        Configuration.load(file=path)


def test_options_of_a_table() -> None:
    assert table_option(SCAN_PARALLELISM, {"scan.parallelism": "3"}, "orders") == 3
    assert table_option(SCAN_PARALLELISM, {"path": "x"}, "orders") is None
    for bad in ("0", "abc"):
        with pytest.raises(ConfigError) as caught:
            table_option(SCAN_PARALLELISM, {"scan.parallelism": bad}, "orders")
        assert repr(bad) in str(caught.value)
        assert "orders" in str(caught.value)


OF_TABLE: dict[str, tuple[dict[str, str], dict[str, str], int | None]] = {
    "nothing": ({}, {}, 2),
    "its options": ({"sink.parallelism": "3"}, {}, 3),
    "its properties": ({}, {"sink.parallelism": "4"}, 4),
    "its options over its properties": ({"sink.parallelism": "3"}, {"sink.parallelism": "4"}, 3),
    "properties of other engines": ({}, {"sink.rolling-policy.file-size": "1 mb", "comment": "x"}, 2),
    "options without the prefix": ({"compression": "zstd", "scan.parallelism": "7"}, {}, 2),
}


@pytest.mark.parametrize("case", OF_TABLE)
def test_options_for_a_table(case: str) -> None:
    options, properties, expected = OF_TABLE[case]
    config = Configuration.load({"sink.parallelism": 2})
    table_config = config.for_table("sink.", options, properties, "t")
    assert table_config.get(SINK_PARALLELISM) == expected
    assert config.get(SINK_PARALLELISM) == 2
    assert table_config.origin(SINK_PARALLELISM) == ("Environment(config=...)" if expected == 2 else "the options of t")


@pytest.mark.parametrize(
    ("options", "properties", "message"),
    [
        ({"sink.paralelism": "3"}, {}, r"(?s)sink\.paralelism.*the options of t.*did you mean .sink\.parallelism."),
        ({"sink.parallelism": "many"}, {}, r"sink\.parallelism.*many"),
        ({"sink.parallelism": "0"}, {"sink.parallelism": "3"}, r"sink\.parallelism"),
        (
            {"sink.partition-commit.policy.kind": "metastore,custom"},
            {},
            r"(?s)policy\.kind.*metastore,custom.*one or more of success-file, metastore",
        ),
    ],
)
def test_invalid_options_of_a_table(options: dict[str, str], properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Configuration().for_table("sink.", options, properties, "t")


@pytest.mark.parametrize(
    ("key", "text"),
    [("sink.parallelism", "0"), ("sink.parallelism", "many"), (SINK_PARTITION_COMMIT.key, "metastore,custom")],
)
def test_an_invalid_property_is_logged_and_ignored(caplog: pytest.LogCaptureFixture, key: str, text: str) -> None:
    options = {"sink.parallelism": "2", SINK_PARTITION_COMMIT.key: "success-file"}
    valid = {"sink.auto-compaction": "true"}
    config = Configuration.load(options).for_table("sink.", {}, {key: text, **valid}, "orders")
    assert config.get(SINK_PARALLELISM) == 2
    assert config.get(SINK_PARTITION_COMMIT) == ("success-file",)
    assert config.flag(SINK_AUTO_COMPACTION)
    assert "a property of orders is ignored" in caplog.text
    assert key in caplog.text
    assert text in caplog.text
