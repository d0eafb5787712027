"""The dashboard: one page that shows queries, their plans, answers and traces, and an editor for SQL.

**The page** is in `ui/` at the root of the repository: plain JavaScript modules, and CodeMirror, dagre and uPlot. `make
ui` bundles them into `static/`, which is committed, so that nobody who installs Headrace needs Node. A test compares
the checksum of the sources with that of the build.

**Its data** is what the commands print, too: statements by `POST /sql`, answers by `GET /subscribe/{name}`, and routes
under `/ui/data`, which only read. What the page changes (START, STOP, INSERT) it changes by statements, so roles and
the audit log are those of the server. Two hosts serve it: a server (`server/http/page.py`), and `headrace ui
FILE|CHECKPOINT`, which is for one query on this machine. `/ui/data/about` says which screens a host has.

**Safety.** The page and its files are open to all, data is not: requests have the token of the user, which the tab
keeps. The policy of the page allows scripts and styles of its own files, requests to its own server, and nothing else;
no text of a payload becomes HTML (`ui/src/dom.js`).
"""
