"""What a file sink writes can be read as a stream again."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from headrace.io.encode import physical_to_jsonl

EVENTS = hr.events("""
    kind    | le | re | re_new | k | x
    insert  | 1  | ∞  |        | a | 1.5
    retract | 1  | ∞  | 7      | a | 1.5
    insert  | 3  | 4  |        | b |
    cti     | 5  |    |        |   |
""").node.input.origin.table


def test_payloads_of_their_own_and_beside_the_times(tmp_path: Path):
    (tmp_path / "batch-0").mkdir()
    (tmp_path / "batch-0" / "part-00000.jsonl").write_bytes(physical_to_jsonl(EVENTS))
    nested = hr.read_events(str(tmp_path), "k STRING, x DOUBLE", format="json").cht()
    flat = tmp_path / "flat.jsonl"
    flat.write_text('{"kind":"insert","le":1,"re":7,"k":"a","x":1.5}\n{"le":3,"re":4,"kind":"insert","k":"b"}\n')
    assert nested.num_rows == 2
    assert hr.same_history(nested, hr.read_events(str(flat), "k STRING, x DOUBLE").cht())
