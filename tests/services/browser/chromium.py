"""Debian's Chromium: where it is, and how it is installed (`python -m tests.services.browser.chromium`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

__all__ = ["chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "fonts-dejavu-core")


def chromium() -> str:
    """The path of the browser; it is installed if that is possible."""
    found = _found()
    if found is None and (apt := shutil.which("apt-get")) and os.geteuid() == 0:
        sys.stderr.write(f"Installing {' '.join(_PACKAGES)} with apt-get.\n")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *_PACKAGES]):
            subprocess.run([apt, "-q", *arguments], check=True, stdout=sys.stderr, env=quiet)
        found = _found()
    if found is None:
        raise RuntimeError("the tests of the dashboard need Chromium: apt-get install chromium, as root")
    return found


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


if __name__ == "__main__":
    sys.stdout.write(f"{chromium()}\n")
