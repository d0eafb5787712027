"""Modules on a server: an administrator installs wheels, and statements use their modules by name.

| file | is |
|---|---|
| `wheel.py` | reading and checking a wheel |
| `shading.py` | its packages under a name of their own, so that versions are there side by side |
| `stored.py` | the installed packages in the catalog on disk |
| `installed.py` | installing, removing, and what names mean |
"""

from headrace.server.modules.installed import ServerModules
from headrace.server.modules.stored import Package

__all__ = ["Package", "ServerModules"]
