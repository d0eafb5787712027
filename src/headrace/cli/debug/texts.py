"""The help of the terminal debugger."""

from __future__ import annotations

__all__ = ["HELP", "SHORT", "help_lines"]

#: For each command, its forms with what they do.
HELP: dict[str, tuple[tuple[str, str], ...]] = {
    "batch": (("batch, b", "run the next batch; inside of a batch, the rest of it"),),
    "operator": (("operator, o", "run the next operator"),),
    "event": (("event, e", "run the next row of an input, as a batch of its own"),),
    "run": (("run, r", "run to the next breakpoint, or to the end"),),
    "into": (("into", "at a call, continue in Python's debugger inside of the call"),),
    "restart": (("restart", "begin again, with the same breakpoints and changes"),),
    "break": (
        ("break 3 [when price > 100]", "stop when operator 3 gives a change (with this condition)"),
        ("break in 3 [when …]", "stop when it is about to get one"),
        ("break retraction [3]", "stop when an operator takes an event back"),
        ("break late [1]", "stop at a late or diverted row of an input"),
        ("break cti 3 TIME", "stop when the CTI of operator 3 passes a time"),
        ("break call NAME", "stop when a function or module is called"),
    ),
    "breakpoints": (("breakpoints, bp", "list them, with how often they stopped the run"),),
    "delete": (("delete 1", "delete a breakpoint"),),
    "where": (("where, w", "the operators with the changes of the batch, and the place of the run"),),
    "in": (("in 3 [BATCH]", "the changes that an operator got in the batch"),),
    "out": (("out 3 [BATCH]", "the changes that an operator gave in the batch"),),
    "history": (("history [3] [BATCH]", "what a reader of an operator knows now, or knew after a batch"),),
    "state": (("state 3 [BATCH]", "what an operator remembers"),),
    "why": (("why [3] CONDITION [at TIME]", "why the one event with this condition is there"),),
    "whynot": (("whynot [3] CONDITION [at TIME]", "why no event has this condition"),),
    "retracted": (("retracted [3] CONDITION", "why the one event with this condition was taken back"),),
    "cti": (("cti [3] [BATCH]", "why the CTI of an operator is where it is"),),
    "forward": (("forward [1] CONDITION", "what became of the one input event with this condition"),),
    "edit": (
        ("edit 1 remove CONDITION", "remove rows of an input, and return to before the first of them"),
        ("edit 1 replace CONDITION with x=1", "give rows other values"),
        ("edit 1 add x=1, k='a'", "add a row; behind each form: from batch 3"),
    ),
    "query": (("query FILE[:NAME]", "run another query over the same rows, up to this batch"),),
    "compare": (("compare", "the run without changes (left), and this one (right)"),),
    "help": (("help [COMMAND]", "this list"),),
    "quit": (("quit, q", "leave"),),
}  # fmt: skip

#: Short names of commands.
SHORT = {"b": "batch", "bp": "breakpoints", "e": "event", "o": "operator", "q": "quit", "r": "run", "w": "where"}


def help_lines(command: str | None = None) -> list[str]:
    """The help of a command, or of all."""
    forms = [form for name, own in HELP.items() if command in (None, name) for form in own]
    return [f"  {form:<34} {what}" for form, what in forms]
