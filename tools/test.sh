#!/usr/bin/env bash
# Runs the tests in two processes at a time, then those that measure time, alone. Most of a small query's time goes into
# planning it, in one thread: one process leaves a core idle. Arguments: Python, and what pytest is to be told besides.
set -uo pipefail
python=$1
selected=$2
shift 2
beside=$(mktemp)
trap 'rm -f "$beside"' EXIT

run() {  # no test that fits is no failure
  "$python" -m pytest -m "$1" "${@:2}"
  local code=$?
  [ $code = 5 ] && return 0
  return $code
}

folders=()
for file in tests/*/test_*.py tests/*/*/test_*.py; do folders+=("$file"); done
run "($selected) and not alone" "$@" "${folders[@]}" >"$beside" 2>&1 &
second=$!
run "($selected) and not alone" "$@" tests/test_*.py
failed=$?
wait $second || failed=1
echo "The tests in folders, which ran at the same time:"
cat "$beside"
echo "The tests that measure time:"
run "($selected) and alone" "$@" tests || failed=1
exit $failed
