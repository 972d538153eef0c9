#!/usr/bin/env bash
# Runs the tests that measure time sequentially, and then the others in two processes, as a small query spends most of its
# time on planning in a single thread. Tests that fork come first, so pytest-xdist must not reorder them.
# Arguments: Python, a marker expression, and further arguments of pytest. No test starts later than TEST_SECONDS.
set -uo pipefail
python=$1
selected=$2
shift 2
failed=0
if [[ -n ${TEST_SECONDS-} ]]; then
  TEST_END=$(($(date +%s) + TEST_SECONDS))
  export TEST_END
  set -- -p tests.support.deadline "$@"
fi
if [[ $selected != *"not thorough"* ]]; then  # tests that measure time are thorough
  "$python" -m pytest -m "($selected) and alone" "$@"
  [[ $? -eq 0 || $? -eq 5 ]] || failed=1  # 5: no test was selected, which is valid for some folders of tests
fi
"$python" -m pytest -m "($selected) and not alone" -n 2 --dist loadfile --no-loadscope-reorder -p tests.support.durations "$@" || failed=1
exit $failed
