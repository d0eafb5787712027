#!/usr/bin/env bash
# Everything that must hold before a change goes in: lint, format, types, the site of the documentation, and the tests.
# Tests marked `services` are left out: `make test-services` runs them.
# With --all as the first argument the tests are all there are, with more examples (tests/conftest.py); else those that are
# not marked `volume`. All other arguments go to pytest.
#
# One process can have one Spark session only: tests with Spark run in one process, beside everything else, since they
# wait more than they compute; what they print comes at the end. Tests without Spark run on two cores. A worker takes
# half of them in order, so that what a file makes for all its tests is made once, and then helps the other one.
# Every phase runs, whatever the one before said. A phase that collects no tests has failed (pytest's exit code 5).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=.venv/bin
some=" and not volume"
if [ "${1:-}" = --all ]; then
  shift
  some=""
  export HYPOTHESIS_PROFILE="${HYPOTHESIS_PROFILE:-all}"
fi
failed=0
summary=()

report() {
  local name=$1 seconds=$2 code=$3
  if [ "$code" -eq 0 ]; then
    summary+=("$(printf 'ok      %-22s %4d s' "$name" "$seconds")")
  else
    summary+=("$(printf 'FAILED  %-22s %4d s   exit code %d' "$name" "$seconds" "$code")")
    failed=1
  fi
}

phase() {
  local name=$1 start=$SECONDS code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  [ "$code" -ne 130 ] || exit 130
  report "$name" $((SECONDS - start)) "$code"
}

beside=$(mktemp -d)
{
  begun=$SECONDS
  "$bin/pytest" -q -m "spark and not services$some" "$@" >"$beside/log" 2>&1
  printf '%d %d\n' $((SECONDS - begun)) $? >"$beside/end"
} &
with_spark=$!
trap 'pkill -P "$with_spark"; rm -rf "$beside"' EXIT
trap 'exit 130' INT

phase "lint" "$bin/ruff" check .
phase "format" "$bin/ruff" format --check .
phase "types" "$bin/mypy"
phase "documentation" "$bin/python" docs/site.py
phase "tests without Spark" "$bin/pytest" -q -n 2 --dist worksteal -m "not spark and not services$some" "$@"

printf '\n== tests with Spark, which ran beside\n'
wait "$with_spark"
cat "$beside/log"
read -r seconds code <"$beside/end"
report "tests with Spark" "$seconds" "$code"

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
