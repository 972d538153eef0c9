#!/usr/bin/env bash
# Runs the tests that measure time, one after the other, then all others in two processes: most of a small query's time goes
# into planning it, in one thread, so one process leaves a core idle. Tests that fork come first, so their order is kept.
# Arguments: Python, what to select, and more for pytest. With TEST_SECONDS, tests are started for so long.
set -uo pipefail
python=$1
selected=$2
shift 2
failed=0
if [[ -n ${TEST_SECONDS-} ]]; then
  TEST_END=$(($(date +%s) + TEST_SECONDS))
  export TEST_END
  set -- -p tests.deadline "$@"
fi
if [[ $selected != *"not thorough"* ]]; then  # tests that measure time are thorough
  "$python" -m pytest -m "($selected) and alone" "$@"
  [[ $? -eq 0 || $? -eq 5 ]] || failed=1  # 5: a part of the tests may have none of these
fi
"$python" -m pytest -m "($selected) and not alone" -n 2 --dist loadfile --no-loadscope-reorder -p tests.durations "$@" || failed=1
exit $failed
