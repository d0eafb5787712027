#!/usr/bin/env bash
# Makes .venv and installs Headrace into it, editable, with every version pinned by constraints.txt.
# PYTHON chooses the interpreter; without it, the first of python3, python3.13, 3.12, 3.11 that is new enough.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
can_install() { command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; }
stop() { echo "$1" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    is_new_enough "$candidate" && printf '%s\n' "$candidate" && return 0
  done
  return 1
}

apt_install() {
  echo "Installing $* with apt-get." >&2
  apt-get update >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
}

if ! python=$(find_python); then
  [ -z "${PYTHON:-}" ] || stop "PYTHON=$PYTHON is not Python 3.11 or newer (it is: $(version_of "$PYTHON" || echo 'not found')); name another one: make PYTHON=python3.12 ..."
  if ! command -v python3 >/dev/null && can_install; then apt_install python3 python3-venv || true; fi
  python=$(find_python) || stop "Headrace needs Python 3.11 or newer (python3 is: $(version_of python3 || echo 'not found')): install one, or name it: make PYTHON=/path/to/python3.12 ..."
fi
if ! has_venv "$python"; then
  # Debian keeps venv and ensurepip in a package of their own, one for each Python.
  if can_install; then apt_install "python$(version_of "$python")-venv" || apt_install python3-venv || true; fi
  has_venv "$python" || stop "$python has no venv module: install it (Debian or Ubuntu: apt-get install python$(version_of "$python")-venv) or name another Python: make PYTHON=/path/to/python3.12 ..."
fi

# An environment of another Python, or one whose Python is gone, is made anew.
if [ "$(version_of .venv/bin/python || true)" != "$(version_of "$python")" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  echo "Making .venv with Python $(version_of "$python")."
  "$python" -m venv --clear .venv
fi
echo "Installing Headrace and the pinned versions of what it needs (about a minute the first time)."
pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt)
# What builds packages is installed like the rest, so that it is pinned too and a second run needs no network:
# hatchling builds Headrace, setuptools builds PySpark, which comes as source.
"${pip[@]}" hatchling editables setuptools wheel
"${pip[@]}" --no-build-isolation --editable '.[delta,objects,kafka,postgres,server,notebook,otel,test,dev,docs]'
# The sample package of modules, as a user would have it: its entry points are known to hr.modules().
"${pip[@]}" --no-build-isolation --no-deps --editable packages/headrace-finance --editable packages/headrace-sqlite
touch .venv/.ready
