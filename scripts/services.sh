#!/usr/bin/env bash
# The tests with Kafka, PostgreSQL, a cluster of Spark and a browser, in two halves that run beside each other, since they
# wait more than they compute: the browser and the drivers that are killed, whose output comes at the end, and all others.
# Each half starts servers of its own. The browser has a process of its own: its driver keeps an event loop in the thread
# of the tests. All arguments go to pytest; they may choose tests of one part only (pytest's exit code 5 in the others).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=.venv/bin
browser=(tests/services/browser)
killed=(tests/services/cluster tests/services/test_pipelines.py)
beside=$(mktemp -d)
{
  "$bin/pytest" -q -m services "${browser[@]}" "$@" >"$beside/log" 2>&1
  echo $? >"$beside/ends"
  "$bin/pytest" -q -m services "${killed[@]}" "$@" >>"$beside/log" 2>&1
  echo $? >>"$beside/ends"
} &
of_killed=$!
trap 'pkill -P "$of_killed"; rm -rf "$beside"' EXIT
trap 'exit 130' INT

code=0
others=("${browser[@]}" "${killed[@]}")
"$bin/pytest" -q -m services tests/services "${others[@]/#/--ignore=}" "$@" || code=$?
[ "$code" -ne 130 ] || exit 130

printf '\n== the browser, and drivers and clusters that are killed, which ran beside\n'
wait "$of_killed"
cat "$beside/log"
# The worst of all ends; no tests in a part (5) counts only if no part had any.
ends=("$code" $(cat "$beside/ends"))
worst=5
for end in "${ends[@]}"; do
  if [ "$end" -ne 5 ] && { [ "$worst" -eq 5 ] || [ "$end" -gt "$worst" ]; }; then worst=$end; fi
done
exit "$worst"
