#!/usr/bin/env bash
# The tests with Kafka, PostgreSQL and a cluster of Spark: those that start drivers and kill them run beside all others,
# since both wait more than they compute; what they print comes at the end. Each half starts servers of its own.
# All arguments go to pytest; they may choose tests of one half only (pytest's exit code 5 in the other).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=.venv/bin
killed=(tests/services/cluster tests/services/test_pipelines.py)
beside=$(mktemp -d)
{
  "$bin/pytest" -q -m services "${killed[@]}" "$@" >"$beside/log" 2>&1
  echo $? >"$beside/end"
} &
of_killed=$!
trap 'pkill -P "$of_killed"; rm -rf "$beside"' EXIT
trap 'exit 130' INT

code=0
"$bin/pytest" -q -m services tests/services "${killed[@]/#/--ignore=}" "$@" || code=$?
[ "$code" -ne 130 ] || exit 130

printf '\n== drivers and clusters that are killed, which ran beside\n'
wait "$of_killed"
cat "$beside/log"
read -r other <"$beside/end"
[ "$code" -ne 5 ] || [ "$other" -ne 0 ] || code=0
[ "$other" -ne 5 ] || [ "$code" -ne 0 ] || other=0
exit $((code > other ? code : other))
