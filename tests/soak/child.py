"""The process of a soak that runs the query, and is killed: `python -m tests.soak.child FOLDER HOST [BROKER TOPIC]`.

It prints a line of JSON each second. When the file `finish` appears, it processes what is there, and ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.soak.feed import DELAY

import headrace as hr
from headrace.api.running import start_all

__all__ = ["SCHEMA", "WINDOW", "answers"]

SCHEMA = "t DATETIME, k LONG, v LONG"
WINDOW = 5
_KEPT = "20 s"


def answers(folder: Path, broker: str = "", topic: str = "") -> hr.Stream:
    """Sums of each key and window, of the rows of files, and of a topic if there is one."""
    progress = hr.advance(delay=f"{DELAY} s")
    rows = hr.read_csv(str(folder / "in"), SCHEMA, lifetime=hr.point("t"), progress=progress)
    if topic:
        more = hr.read_kafka(topic, SCHEMA, bootstrap=broker, lifetime=hr.point("t"), progress=progress)
        rows = rows.union(more)
    return rows.group_by("k").window(hr.tumbling(f"{WINDOW} s")).aggregate(n=hr.count(), s=hr.sum("v"))


def main() -> None:
    folder, host = Path(sys.argv[1]), sys.argv[2]
    stream = answers(folder, *sys.argv[3:])
    outputs: dict[Any, Any] = {
        "all": (stream, hr.files(str(folder / "all"), format="parquet", compact=10)),
        "recent": (stream, hr.files(str(folder / "recent"), encoding="final", keep=_KEPT)),
    }
    options: Any = {"checkpoint": str(folder / "state"), "retention": {"diverted": _KEPT}, "host": host}
    query = start_all(list(outputs.values()), **options)
    while not (folder / "finish").exists() and query.is_active:
        time.sleep(1)
        _report(query)
    query.finish()
    _report(query)
    query.stop()


def _report(query: Any) -> None:
    report = query.progress()
    rows, diverted = (sum(counts[name] for counts in query.counts.values()) for name in ("rows", "diverted"))
    waiting = sum(limits.get("waiting_files", 0) for limits in report.get("intake", {}).values())
    last = query.driver.last
    files = sum(last.record["files"].values()) if last is not None else 0
    seconds = query.batch_seconds[-20:]
    about = {
        "batch": report.get("batch", -1), "cti": str(report.get("cti", "")), "files": files, "waiting": waiting,
        "rows": rows, "diverted": diverted, "seconds": sum(seconds) / max(1, len(seconds)),
        "time": time.time(), "state": sum(one["bytes"] for one in report.get("operators", ())),
    }  # fmt: skip
    print(json.dumps(about), flush=True)  # noqa: T201 - for the process that started this one


if __name__ == "__main__":
    main()
