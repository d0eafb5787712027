"""A trace as plain values: its graph, the changes of its batches in pages, and the answers to questions about a row.

A page names a row by its place and not by its values, which JSON would round: the operator, the batch, and the number
of the row among the changes of that batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.dashboard.file_lines import lines_of
from headrace.dashboard.stops import breakpoints_of, next_hits
from headrace.errors import TraceError
from headrace.io.origins import Files
from headrace.operators.reference.rows import Row
from headrace.plan.nodes import Admit, Diverted, Failures, Orphans, Source
from headrace.time import CHRONON, INFINITY, NEG_INFINITY
from headrace.tracing.given import without_events
from headrace.tracing.kept_away import complete
from headrace.tracing.plain import plain_events, plain_table, plain_time
from headrace.tracing.record import TracedOperator
from headrace.tracing.recording import RecordedBatch
from headrace.tracing.retracted import why_removed
from headrace.tracing.traced import TracedRun
from headrace.tracing.why import Explainer, Why, event_text

__all__ = ["MOST_ROWS", "TraceData"]

#: The most rows of one page, and the most effects of an event of each operator.
MOST_ROWS = 1_000
_MOST_EFFECTS = 200
#: The most bars of `activity`; more batches are summed.
_MOST_BARS = 600
_SIDES = (Diverted, Failures, Orphans)
#: What ingress counts of rows that it did not take as they are.
_TROUBLES = ("late", "diverted", "dropped", "adjusted", "malformed", "shed", "missing_files", "changed_files")


class TraceData:
    """A trace for a page. All methods return dictionaries, lists, texts and numbers."""

    def __init__(self, name: str, trace: TracedRun) -> None:
        self.name, self.trace, self.record = name, trace, trace.record
        self.lock = Lock()
        #: How much memory it holds, as changes.
        self.rows = sum(
            len(part) for batch in self.record.batches for parts in batch.changes.values() for part in parts
        )
        self._changes = lru_cache(64)(self._changes_of)
        self._histories = lru_cache(8)(self._history_of)
        self._explainers = lru_cache(4)(self._explainer)

    @property
    def reads_files(self) -> bool:
        """Whether an input is files of the user."""
        origins = [source.origin for source in self.record.line.sources]
        return any(isinstance(origin, Files) and not origin.label for origin in origins)

    # --- the graph and its batches -----------------------------------------------------------------------------------

    def graph(self) -> dict[str, Any]:
        """The operators with their inputs and columns, and the number of batches."""
        return {
            "name": self.name,
            "dates": self.record.dates,
            "output": self.record.output.number,
            "first": self.record.first,
            "batches": len(self.record.batches),
            "ended": self.record.ended,
            "rows": self.rows,
            "stateKept": any(batch.states for batch in self.record.batches),
            "nodes": [
                self._node(self.record.operator(row["operator"]), row) for row in self.trace.operators.to_pylist()
            ],
        }

    def batch(self, batch: int) -> dict[str, Any]:
        """What each operator gave in a batch, and its progress and state after it."""
        recorded = self.record.batch(self.record.number(batch))
        return {
            "batch": batch,
            "end": self.record.ended and batch > self.record.latest,
            "operators": [self._operator_in(operator, batch, recorded) for operator in self.record.operators],
            "troubles": self._troubles(recorded),
        }

    def activity(self, operator: int | None = None) -> dict[str, Any]:
        """The changes of each batch, of one operator or of all: bars of `step` batches each."""
        keys = None if operator is None else [self.record.operator(operator).key]
        step = max(1, -(-len(self.record.batches) // _MOST_BARS))
        size = -(-len(self.record.batches) // step)
        added, removed, late = ([0] * size for _ in range(3))
        for number, batch in enumerate(self.record.batches):
            for key in batch.changes if keys is None else keys:
                plus, minus = _weights(batch.changes.get(key, ()))
                added[number // step] += plus
                removed[number // step] += minus
            late[number // step] += sum(report.counts["late"] for _, reports in batch.reports for report in reports)
        return {"step": step, "added": added, "removed": removed, "late": late}

    # --- rows --------------------------------------------------------------------------------------------------------

    def changes(self, operator: int, batch: int, offset: int = 0, limit: int = MOST_ROWS) -> dict[str, Any]:
        """A page of the changes that an operator gave in a batch."""
        found = self._changes(operator, self.record.number(batch))
        plus, minus = _weights([found])
        return {**self._page(self.record.operator(operator), found, offset, limit), "added": plus, "removed": minus}

    def history(self, operator: int, batch: int, offset: int = 0, limit: int = MOST_ROWS) -> dict[str, Any]:
        """A page of the history of an operator after a batch, in the order of starts."""
        found = self._histories(operator, self.record.number(batch))
        return self._page(self.record.operator(operator), found, offset, limit)

    def state(self, operator: int, batch: int, limit: int = 200) -> dict[str, Any]:
        """The first rows of each table of an operator's state after a batch."""
        tables = self.trace.state(operator, self.record.number(batch))
        return {
            "tables": [
                {
                    "name": name,
                    "total": table.num_rows,
                    "columns": [{"name": field.name, "number": _is_number(field.type)} for field in table.schema],
                    "rows": plain_table(table.slice(0, min(limit, MOST_ROWS))),
                }
                for name, table in tables.items()
            ]
        }

    # --- questions ---------------------------------------------------------------------------------------------------

    def why(self, operator: int, batch: int, row: int, at: str = "changes") -> dict[str, Any]:
        """Why a row is there: the steps back to the inputs, each with its place. Of a removal, why it was there."""
        found, event, weight = self._row(operator, batch, row, at)
        when = batch if weight > 0 else batch - 1
        if when < 0 or (weight < 0 and not self._was_there(found, event, when)):
            raise TraceError("this event was added and taken back in one batch", given=event_text(found, event))
        explainer = self._explainers(self.record.settled(found, when))
        return self._steps(complete(explainer, explainer.why(found, event)))

    def why_retracted(self, operator: int, batch: int, row: int, at: str = "changes") -> dict[str, Any]:
        """Why a row was taken back in a batch; of a row that was added, the next batch that took it back."""
        found, event, weight = self._row(operator, batch, row, at)
        if weight > 0:
            later = [
                place.batch
                for place in self.record.places_of(found).find(event, removals=True)
                if place.batch > batch or (place.batch == batch and at == "changes")
            ]
            if not later:
                raise TraceError("this event was not taken back", given=event_text(found, event))
            batch = later[0]
        if batch == 0 or not self._was_there(found, event, batch - 1):
            raise TraceError(
                "this event was added and taken back in one batch",
                given=event_text(found, event),
                instead="smaller batches",
            )
        if self._count_in(found, event, batch) >= 0:
            raise TraceError("this event was taken back and added again in one batch", given=event_text(found, event))
        return self._steps(why_removed(self.record, found, event, batch), removed=True)

    def forward(self, operator: int, batch: int, row: int, at: str = "changes") -> dict[str, Any]:
        """What became of an input event: how the histories differ at the end from those of a run without it."""
        found, event, _ = self._row(operator, batch, row, at)
        other = without_events(self.record, [(found, event)])
        effects, total = [], 0
        for one in self.record.operators:
            difference = self.record.difference(other, one)
            total += len(difference)
            effects += self._effects(one, difference.slice(0, _MOST_EFFECTS))
        return {"event": event_text(found, event), "effects": effects, "total": total}

    def compare(self, other: TraceData) -> dict[str, Any]:
        """Two runs side by side: pairs of operators with the first batch that differs, and the rows of both answers.

        Rows that only one of them has come first.
        """
        found = self.trace.compare(other.trace)
        answers = found.answers
        apart = pc.not_equal(answers["side"], "both")
        ordered = pa.concat_tables([answers.filter(apart).sort_by("le"), answers.filter(pc.invert(apart))])
        return {
            "operators": plain_table(found.operators),
            "columns": [{"name": field.name, "number": _is_number(field.type)} for field in answers.schema],
            "answers": plain_table(ordered.slice(0, MOST_ROWS)),
            "total": ordered.num_rows,
            "apart": int(pc.sum(apart).as_py() or 0),
        }

    def why_not(self, operator: int, batch: int, values: str = "{}", at: str = "") -> dict[str, Any]:
        """Why an event is not there after a batch: `values` are columns with their values as texts, in JSON."""
        found = self.record.operator(operator)
        wanted = _typed_values(found, values)
        answer = self.trace.why_not(wanted, operator=operator, batch=batch, at=_time_of(at) if at.strip() else None)
        plain = answer.as_dict()
        for step, shown in zip(answer.steps(), plain["steps"], strict=True):
            for reason, shown_reason in zip(step.reasons, shown["reasons"], strict=True):
                for (_, event), shown_event in zip(reason.events, shown_reason["events"], strict=True):
                    shown_event["row"] = self._place_of(event.operator, event.row, event.batch)
        return plain

    def why_cti(self, operator: int, batch: int) -> dict[str, Any]:
        """Why the CTI of an operator is where it is after a batch: the steps to what holds it."""
        answer = self.trace.why_cti(operator, batch)
        plain = answer.as_dict()
        for step, shown in zip(answer.steps(), plain["steps"], strict=True):
            for event, shown_event in zip(step.events, shown["events"], strict=True):
                shown_event["row"] = self._place_of(event.operator, event.row, event.batch)
        return plain

    def lines(self, operator: int, batch: int, row: int, at: str = "changes") -> dict[str, Any]:
        """The files and lines of an input event, as far as they are known; if there are several, it is one of them."""
        found, event, _ = self._row(operator, batch, row, at)
        lines, more = lines_of(self.record.source_of(found), event)
        return {"lines": lines, "more": more}

    def stop(self, batch: int, operator: int = 0, breakpoints: str = "[]") -> dict[str, Any]:
        """Where the run would have stopped next at breakpoints, behind an operator in a batch; or that it would not.

        With operator 0 it begins before the batch.
        """
        found = breakpoints_of(self.record, breakpoints)
        hits = next_hits(self.record, found, (self.record.number(batch), operator))
        place = {"batch": hits[0].step.batch, "operator": hits[0].step.operator.number} if hits else None
        return {
            "breakpoints": [one.text for one in found],
            "place": place,
            "hits": [{"breakpoint": hit.breakpoint.number, "text": hit.text} for hit in hits],
        }

    # --- parts -------------------------------------------------------------------------------------------------------

    def _node(self, operator: TracedOperator, totals: Mapping[str, Any]) -> dict[str, Any]:
        node = operator.node
        return {
            "id": operator.number,
            "kind": totals["kind"],
            "title": totals["kind"],
            "text": operator.text,
            "inputs": list(operator.inputs),
            "side": isinstance(node, _SIDES),
            "input": isinstance(node, (Source, Admit)),
            "stateful": not node.linear,
            "columns": _columns(operator),
            **{name: totals[name] for name in ("changes", "removals", "seconds", "state_rows", "state_bytes")},
        }

    def _operator_in(self, operator: TracedOperator, number: int, recorded: RecordedBatch) -> dict[str, Any]:
        now = self.record.progress_of(operator, number)
        added, removed = _weights(recorded.changes.get(operator.key, ()))
        size = recorded.sizes.get(operator.key, {})
        return {
            "id": operator.number,
            "added": added,
            "removed": removed,
            "cti": None if now.cti == NEG_INFINITY else plain_time(now.cti, dates=self.record.dates),
            "high": None if now.high in (INFINITY, NEG_INFINITY) else plain_time(now.high, dates=self.record.dates),
            "seconds": recorded.seconds.get(operator.key, 0.0),
            "state_rows": size.get("rows"),
            "state_bytes": size.get("bytes"),
        }

    def _troubles(self, recorded: RecordedBatch) -> list[dict[str, Any]]:
        """Rows of inputs that were late, malformed, or not taken, with one of them and its reason."""
        numbers = {operator.key: operator.number for operator in self.record.operators}
        found = []
        for source, reports in recorded.reports:
            counts = {name: sum(report.counts[name] for report in reports) for name in _TROUBLES}
            if any(counts.values()):
                example = next((report.example for report in reports if report.example), None)
                kept = {name: count for name, count in counts.items() if count}
                found.append({"id": numbers.get(source.fingerprint), "counts": kept, "example": example})
        return found

    def _page(self, operator: TracedOperator, found: Changes, offset: int, limit: int) -> dict[str, Any]:
        if offset < 0 or limit < 1:
            raise TraceError("this is no page", given=f"offset {offset}, limit {limit}", allowed="from 0, at least 1")
        start = min(offset, len(found))
        part = found.slice(start, min(len(found), start + min(limit, MOST_ROWS)))
        return {
            "columns": _columns(operator),
            "offset": offset,
            "total": len(found),
            "rows": [{"row": offset + i, **event} for i, event in enumerate(self._plain(operator, part))],
        }

    def _plain(self, operator: TracedOperator, changes: Changes) -> list[dict[str, Any]]:
        events = plain_events(_rows(changes), operator.node.schema, dates=operator.node.dates)
        instants = changes.re == changes.le + CHRONON
        return [
            {**event, "weight": int(weight), "point": bool(instant)}
            for event, weight, instant in zip(events, changes.weight, instants, strict=True)
        ]

    def _effects(self, operator: TracedOperator, difference: Changes) -> list[dict[str, Any]]:
        places = self.record.places_of(operator)
        effects = []
        for event, row in zip(self._plain(operator, difference), _rows(difference), strict=True):
            found = places.find(row)
            place = {"batch": found[-1].batch, "row": found[-1].row} if found else {"batch": None, "row": None}
            effects.append({"operator": operator.number, **event, **place, "text": event_text(operator, row)})
        return effects

    def _steps(self, why: Why, *, removed: bool = False) -> dict[str, Any]:
        """The steps of an answer, each with its row among the changes of its batch, and its weight there."""
        answer = why.as_dict()
        gone = {id(why.root)} if removed else set[int]()
        for step, plain in zip(why.steps(), answer["steps"], strict=True):
            gone |= {id(cause) for role, cause in step.causes if role == "taken back"}
            plain["row"] = self._place_of(step.operator, step.row, step.batch, removed=id(step) in gone)
            plain["weight"] = -1 if id(step) in gone else 1
            plain["input"] = not step.causes
            plain["point"] = step.row[1] == step.row[0] + CHRONON
        return {**answer, "inputs": sum(step["input"] for step in answer["steps"])}

    def _place_of(self, operator: TracedOperator, event: Row, batch: int, *, removed: bool = False) -> int | None:
        """The row of an event among the changes of a batch."""
        found = self.record.places_of(operator).find(event, removals=removed)
        return next((place.row for place in found if place.batch == batch), None)

    def _row(self, operator: int, batch: int, row: int, at: str) -> tuple[TracedOperator, Row, int]:
        """The event at a place, and its weight."""
        if at not in ("changes", "history"):
            raise TraceError("there are no such rows", given=at, allowed="changes, history")
        found = (self._changes if at == "changes" else self._histories)(operator, self.record.number(batch))
        if not 0 <= row < len(found):
            raise TraceError("there is no such row", given=row, allowed=f"0 to {len(found) - 1}")
        one = found.slice(row, row + 1)
        return self.record.operator(operator), _rows(one)[0], int(one.weight[0])

    def _was_there(self, operator: TracedOperator, event: Row, batch: int) -> bool:
        places = self.record.places_of(operator)
        added, gone = (
            sum(p.batch <= batch for p in places.find(event, removals=removals)) for removals in (False, True)
        )
        return added > gone

    def _count_in(self, operator: TracedOperator, event: Row, batch: int) -> int:
        """How many more changes of a batch added an event than took it back."""
        places = self.record.places_of(operator)
        added, gone = (places.find(event, removals=removals) for removals in (False, True))
        return sum(place.batch == batch for place in added) - sum(place.batch == batch for place in gone)

    def _changes_of(self, operator: int, batch: int) -> Changes:
        found = self.record.operator(operator)
        parts = self.record.batch(batch).changes.get(found.key, ())
        return Changes.concat([Changes.empty(found.node.schema), *parts])

    def _history_of(self, operator: int, batch: int) -> Changes:
        found = self.record.changes_until(self.record.operator(operator), batch).consolidate()
        return found.take(np.lexsort((found.re, found.le)))

    def _explainer(self, batch: int) -> Explainer:
        return Explainer(self.record, batch)


def _rows(changes: Changes) -> list[Row]:
    payloads = changes.payload.to_pylist() or [{} for _ in range(len(changes))]
    return list(zip(changes.le.tolist(), changes.re.tolist(), payloads, strict=True))


def _typed_values(operator: TracedOperator, values: str) -> dict[str, Any]:
    """Values that a user wrote as texts, in the types of an operator's columns; times are left as they are."""
    try:
        given = json.loads(values)
    except (ValueError, RecursionError) as error:
        raise TraceError("these are not values", given=values[:200], allowed="JSON", instead='{"k": "a"}') from error
    types = {field.name: field.type for field in operator.node.schema.arrow}
    found: dict[str, Any] = {}
    for name, text in given.items() if isinstance(given, dict) else ():
        if text is None or (name in types and pa.types.is_timestamp(types[name])):
            found[name] = text
            continue
        try:
            found[name] = (
                pa.scalar(str(text), pa.string()).cast(types[name]).as_py() if name in types else _time_of(text)
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
            raise TraceError(f"this is no value of {name}", given=text, allowed=str(types[name])) from error
    return found


def _time_of(text: str) -> Any:
    """A time as a user writes it: a date, or a number where times are numbers."""
    return int(text) if re.fullmatch(r"\s*-?[0-9]{1,18}\s*", str(text)) else str(text).strip()


def _weights(parts: Sequence[Changes]) -> tuple[int, int]:
    """How many events changes add, and how many they remove."""
    added = sum(int(part.weight[part.weight > 0].sum()) for part in parts)
    return added, sum(-int(part.weight[part.weight < 0].sum()) for part in parts)


def _columns(operator: TracedOperator) -> list[dict[str, Any]]:
    fields = zip(operator.node.schema, operator.node.schema.arrow, strict=True)
    return [{"name": field.name, "type": field.type.value, "number": _is_number(arrow.type)} for field, arrow in fields]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
