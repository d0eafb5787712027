"""Schema drift in files of JSON lines, which have no header: a file has the members that its rows have.

The first block with objects decides which columns the file lacks, and which new names of columns apply. A file whose
only objects are `{}` lacks all columns; one without objects, such as an empty one, says nothing. Under a policy all
rows are looked at, and a new column that only later rows have is found with them: then the rows from its block on are
those of a file that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.errors import SchemaError
from headrace.io.drift import DriftJudge, DriftVerdict
from headrace.io.json_members import all_members, members_of_block
from headrace.io.json_shapes import ByteSpans, Form
from headrace.io.records import Records

__all__ = ["FileDrift"]


@dataclass
class FileDrift:
    """The drift of a file of JSON lines, block by block.

    `declared` are the names of all columns, also of those that are not read, and `elsewhere` of those that are no
    members. `thorough` looks at all rows; otherwise
    only new columns of the first rows are found, and those do not matter without a policy.
    """

    declared: Sequence[str]
    rename: Mapping[str, str]
    judge: DriftJudge | None = None
    form: Form = ""
    elsewhere: Sequence[str] = ()
    thorough: bool = False
    path: str = ""
    verdict: DriftVerdict = field(default_factory=DriftVerdict, init=False)
    _found: dict[str, None] = field(default_factory=dict, init=False)
    #: The most that was counted so far, by counter.
    _counted: dict[str, int] = field(default_factory=dict, init=False)
    _judges: bool = field(default=False, init=False)
    _done: bool = field(default=False, init=False)

    def look(self, records: Records) -> Mapping[str, int]:
        """Look at a block; gives what is to be counted. Then `verdict` and `rename` are those of the block."""
        if self._done:
            return {}
        self._done = not self.thorough
        members = self._members(records)
        if members is None:
            return {}
        new = [name for name in members if name not in self._found]
        if self._judges and not new:
            return {}
        self._judges = True
        if not self._found:
            # A file that has a member by its new name, and not by its old one, is read as it is.
            names = {old: new for old, new in self.rename.items() if old in members or new not in members}
            self.rename = names
        elif all(self.rename.get(name, name) in self.declared for name in new):
            self._found |= dict.fromkeys(new)
            self._refuse_both_names()
            return {}
        self._found |= dict.fromkeys(new)
        self._refuse_both_names()
        return self._judged()

    def _refuse_both_names(self) -> None:
        """Raise if some rows have a column by its old name and others by its new one: it would be null in these."""
        both = [(old, new) for old, new in self.rename.items() if old in self._found and new in self._found]
        both = [(old, new) for old, new in both if new not in self.rename]
        if self.thorough and both:
            old, new = both[0]
            raise SchemaError(
                f"{self.path!r} has {old!r} and {new!r}, which rename makes one column",
                given=f"rename={{{old!r}: {new!r}}}",
                allowed=", ".join(self._found),
                instead=f"both in the schema, sparse={[old, new]!r}, and hr.coalesce(hr.col({old!r}), hr.col({new!r}))",
            )

    def _judged(self) -> Mapping[str, int]:
        if self.judge is None:
            return {}
        names, hidden = self.rename, set(self.rename.values())
        known = [names.get(name, name) for name in self._found if name in names or name not in hidden]
        self.verdict = self.judge(dict.fromkeys(known), self.elsewhere)
        more = {name: count - self._counted.get(name, 0) for name, count in self.verdict.counts.items()}
        more = {name: count for name, count in more.items() if count > 0}
        self._counted |= {name: self.verdict.counts[name] for name in more}
        return more

    def _members(self, records: Records) -> list[str] | None:
        """The members of a block; None without objects. Promises have no payload, so they say nothing about it."""
        if "kind" in self.declared and b"insert" not in records.data and b'"' in records.data:
            return None
        names = [*self.rename, *self.declared]
        if not self.thorough:
            return members_of_block(records.data, names, nested=self.form == "nested")
        data = np.frombuffer(records.data, np.uint8)
        return all_members(ByteSpans(data, records.bounds.starts, records.bounds.ends), names, self.form)
