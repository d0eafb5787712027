#!/usr/bin/env bash
# Everything that must hold before a change goes in: lint, format, types, the site of the documentation, then the tests
# in two phases, because one process can have one Spark session only: those without Spark on two cores, those with Spark
# in one process.
# Every phase runs, whatever the one before said. A phase that collects no tests has failed (pytest's exit code 5).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=.venv/bin
failed=0
summary=()

phase() {
  local name=$1 start=$SECONDS code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  [ "$code" -ne 130 ] || exit 130
  if [ "$code" -eq 0 ]; then
    summary+=("$(printf 'ok      %-22s %4d s' "$name" $((SECONDS - start)))")
  else
    summary+=("$(printf 'FAILED  %-22s %4d s   exit code %d' "$name" $((SECONDS - start)) "$code")")
    failed=1
  fi
}

phase "lint" "$bin/ruff" check .
phase "format" "$bin/ruff" format --check .
phase "types" "$bin/mypy"
phase "documentation" "$bin/python" docs/site.py
phase "tests without Spark" "$bin/pytest" -q -n 2 -m "not spark" "$@"
phase "tests with Spark" "$bin/pytest" -q -m spark "$@"

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
