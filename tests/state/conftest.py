"""Stopped queries, each made once in a test run."""

from __future__ import annotations

import shutil

import pytest

from tests.state.queries import BY_NAME, Stopped, run, write_input

FILES_BEFORE, FILES_AFTER = 2, 3


@pytest.fixture(scope="session")
def inputs(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    for number in range(FILES_BEFORE + FILES_AFTER):
        write_input(spark, folder, number)
    return sorted(folder.glob("*.parquet"))


@pytest.fixture(scope="session")
def stopped(spark, inputs, tmp_path_factory):
    """Return a function that gives a query by its name, stopped after two files of five."""
    made = {}

    def make(name: str) -> Stopped:
        if name not in made:
            folder = tmp_path_factory.mktemp("query")
            (folder / "in").mkdir()
            for file in inputs[:FILES_BEFORE]:
                shutil.copy2(file, folder / "in")
            query = BY_NAME[name]
            run(spark, query, folder / "in", folder / "checkpoint")
            shutil.copytree(folder / "checkpoint", folder / "untouched")
            for file in inputs[FILES_BEFORE:]:
                shutil.copy2(file, folder / "in")
            later = run(spark, query, folder / "in", folder / "untouched")
            made[name] = Stopped(query, folder / "in", folder / "checkpoint", later)
        return made[name]

    return make
