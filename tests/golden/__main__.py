"""Run ``python -m tests.golden FOLDER [NAME ...]``: NAME is a part of a file's path."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.generated.session import make_session
from tests.golden.runner import FileRun, Summary
from tests.support.native import compute_all_natively, without_python_types


def main(root: Path, names: list[str]) -> int:
    """Compare the files below a folder; print the differences of each, and a summary."""
    paths = sorted(path for path in root.rglob("*.sql") if not names or any(name in str(path) for name in names))
    total = Summary()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        spark = make_session(Path(folder))
        compute_all_natively(patch)
        without_python_types(patch)
        for path in paths:
            start = time.monotonic()
            files = Path(tempfile.mkdtemp(dir=folder))
            try:
                summary = FileRun(spark, files).run(path)
            except Exception as error:
                print(f"{path.relative_to(root)}: cannot be run: {error}", flush=True)
                continue
            total.add(summary)
            print(f"{path.relative_to(root)}: {summary}, {time.monotonic() - start:.0f} s", flush=True)
            for difference in summary.differences:
                print(f"  {difference}", flush=True)
    print(f"{len(paths)} files: {total}")
    for reason, count in total.reasons.most_common(60):
        print(f"{count:6} {reason}")
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
