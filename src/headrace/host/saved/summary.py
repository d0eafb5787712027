"""Summaries of checkpoints: the query, its progress and the size of its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from headrace.border import shown_time
from headrace.host.saved.folder import SavedCheckpoint
from headrace.io.keep import Keep
from headrace.store.blocks import BlockReader
from headrace.store.log import Commit
from headrace.time import format_ticks
from headrace.trace import stored_segments

__all__ = ["Summary", "summary_of"]


class Summary(dict[str, Any]):
    """The summary of a checkpoint, as JSON values; its text is for users."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def summary_of(folder: SavedCheckpoint) -> Summary:
    """The summary of the newest commit."""
    about = folder.about()
    summary: dict[str, Any] = {"path": folder.place, "query": about["fingerprint"], "plan": about["plan"]}
    summary |= {"format": about["format"], "headrace": about.get("headrace"), "driver": folder.driver()}
    stored = _on_disk(folder)
    if not folder.log.batches():
        return Summary(summary, batch=None, buckets=about["buckets"], **stored)
    with folder.last() as commit:
        record = commit.record
        summary |= {"batch": commit.batch, "time": datetime.fromtimestamp(record["time"], UTC).isoformat()}
        summary |= {
            "kept": folder.log.batches(),
            "recording": record.get("recording"),
            "buckets": record.get("buckets", about["buckets"]),
            "circulating": record["circulating"],
        }
        summary |= {"sources": _sources(folder, about, commit), "operators": _operators(about, record)}
        return Summary(summary, sinks=_sinks(about, record), counts=record["counts"], **stored)


def _on_disk(folder: SavedCheckpoint) -> dict[str, int]:
    sizes = folder.root.sizes().values()
    return {"files": len(sizes), "bytes": sum(sizes)}


def _sources(folder: SavedCheckpoint, about: Mapping[str, Any], commit: Commit) -> list[dict[str, Any]]:
    """Every source with its CTI, the number of files it has read and the newest of them, or its partitions' offsets."""
    found = []
    reader = BlockReader(folder.storage, commit)
    dated = about.get("source_dates") or [False] * len(about["sources"])  # earlier versions did not record it
    progress = commit.record["sources"].items()
    for text, dates, (fingerprint, (cti, high)) in zip(about["sources"], dated, progress, strict=True):
        source = {"source": text, "cti": shown_time(cti, dates=dates), "high": shown_time(high, dates=dates)}
        saved = commit.record["positions"].get(fingerprint)
        if saved is not None and "next" in saved["scalars"]:
            source |= {"offsets": saved["scalars"]["next"]}
        elif saved is not None:
            segments = stored_segments(saved["traces"].values(), reader.block).values()
            rows = [row for segment in segments for row in segment.table.to_pylist()]
            newest = max(rows, key=lambda row: (row["modified"], row["path"]), default={"path": None})
            source |= {"files_read": saved["scalars"]["read"], "newest_file": newest["path"]}
        found.append(source)
    return found


def _operators(about: Mapping[str, Any], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operators with state; checkpoints of earlier versions lack the sizes."""
    names = about.get("operators", {})
    sizes = record.get("operators", {})
    traced = [f for f, buckets in record["state"].items() if any(state["traces"] for state in buckets.values())]
    return [{"operator": names.get(f, {}).get("operator", f), **sizes.get(f, {})} for f in traced]


def _sinks(about: Mapping[str, Any], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    dated = about.get("dates") or [False] * len(about["sinks"])
    for form, dates, output in zip(about["sinks"], dated, record["outputs"], strict=True):
        shown = {name: output[name] for name in ("path", "batches", "keep", "removed") if name in output}
        found.append({"sink": form, "cti": shown_time(output["cti"], dates=dates), **shown})
    return found


# --- text ------------------------------------------------------------------------------------------------------------


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"checkpoint {summary['path']} of query {summary['query']}"
    if driver := summary["driver"]:
        ended = ", which has ended" if driver["ended"] else ""
        headrace = f", with Headrace {driver['headrace']}" if "headrace" in driver else ""
        yield f"  last started by process {driver['process']} on {driver['host']}{headrace}{ended}"
    yield f"  format {summary['format']}, created by Headrace {summary['headrace'] or '0.1.0 or earlier'}"
    yield f"  {summary['files']:,} files, {summary['bytes']:,} bytes, {summary['buckets']} buckets"
    if summary["batch"] is None:
        yield "  no batch is committed yet"
    else:
        kept = f"{len(summary['kept'])} commits are kept, from batch {summary['kept'][0]} on"
        yield f"  batch {summary['batch']}, committed at {summary['time']}; {kept}"
        if recording := summary["recording"]:
            kept = f"batches are kept for {recording['seconds']:g} s"
            yield f"  recorded: {kept}, and {recording['removed']:,} older ones were removed"
        if summary["circulating"]:
            yield "  changes go round its loops: the next batch continues with them"
        yield from _position_lines(summary)
    yield "plan, with the stage of each operator"
    yield from (f"  {line}" for line in summary["plan"])


def _position_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    yield "sources"
    for source in summary["sources"]:
        read = f", {source.get('files_read', 0):,} files read, the newest {source.get('newest_file')}"
        yield f"  {source['source']}: CTI {_time(source['cti'])}{read if source.get('newest_file') else ''}"
        yield from (f"    {name}: read up to {offset:,}" for name, offset in source.get("offsets", {}).items())
    yield "operators"
    for operator in summary["operators"]:
        size = f"{operator['rows']:,} rows, {operator['bytes']:,} bytes, held by {operator['held_by']}"
        yield f"  {operator['operator']}: {size if 'rows' in operator else 'size unknown until the next batch'}"
    yield "sinks"
    for sink in summary["sinks"]:
        batches = f", {sink['batches']:,} batches" if "batches" in sink else ""
        if removed := sink.get("removed", {}).get("batches"):
            batches += f", of which {removed:,} were removed: kept are {Keep.from_json(sink['keep'])}"
        yield f"  {sink['sink']} {sink.get('path', '')}".rstrip() + f": CTI {_time(sink['cti'])}{batches}"


def _time(time: int | str) -> str:
    return time if isinstance(time, str) else format_ticks(time)
