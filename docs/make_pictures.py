"""Draws the pictures of the documentation: `python docs/make_pictures.py`.

Drawn with `headrace.display.svg`, as timelines are. Values in the pictures are not typed in: the engine computes them.
A test checks that the files in `docs/pictures` are what this script draws.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.display.svg import BLUE, GREEN, INK, PAPER, RED, SOFT, YELLOW, arrow, bar, box, dot, line, picture, text
from headrace.events import events_table, history


def labelled(x: float, y: float, width: float, name: str, what: str, *, fill: str = PAPER, stroke: str = SOFT) -> str:
    """A box with a name and, below it, what happens there."""
    middle = x + width / 2
    words = text(middle, y + 22, name, anchor="middle", bold=True)
    return (
        box(x, y, width, 46, fill=fill, stroke=stroke)
        + words
        + text(middle, y + 37, what, anchor="middle", colour=SOFT, size=10)
    )


def frame(x: float, y: float, width: float, height: float, words: str) -> str:
    """A task, around what happens in it."""
    return box(x, y, width, height, fill="#f7fafc", stroke=SOFT) + text(x + 12, y + 20, words, size=12, colour=SOFT)


def way_of_an_event() -> str:
    """From a source's row to a sink's row: through the tasks of one batch, and the steps of its driver."""
    blue, green = {"fill": "#ebf8ff", "stroke": BLUE}, {"fill": "#f0fff4", "stroke": GREEN}
    yellow = {"fill": "#fffff0", "stroke": YELLOW}
    named = (
        "how far every source has come: files that were read, CTIs",
        "the segments of every operator's traces, bucket by bucket",
        "the parts of every sink, and how far every output has come",
        "counts, a row that was not used, and what goes round loops",
    )
    parts = [
        text(16, 32, "The way of an event", bold=True, size=16),
        labelled(16, 54, 170, "plan n", "files and clock, fixed first", **blue),
        labelled(560, 54, 180, "commit n", "one file, created once", **blue),
        labelled(800, 54, 156, "publish n", "parts become a batch", **blue),
        arrow(742, 77, 797, 77), line(190, 77, 556, 77, more=' stroke-dasharray="4 4"'),
        text(373, 70, "batch n is one job", anchor="middle", colour=SOFT, size=12),
        arrow(60, 102, 60, 137), arrow(650, 137, 650, 103),
        text(660, 125, "names of what was written", colour=SOFT, size=11),
        frame(16, 140, 420, 150, "intake task, one for each share of the files"),
        labelled(32, 172, 96, "row", "of a file"),
        labelled(160, 172, 110, "ingress", "lifetime, lateness", **blue),
        labelled(302, 172, 120, "changes", "le, re, ±1, payload"),
        arrow(130, 195, 157, 195), arrow(272, 195, 299, 195),
        text(362, 240, "linear operators", anchor="middle", colour=SOFT, size=10),
        arrow(215, 220, 215, 254, RED),
        text(215, 272, "late or malformed rows, with the reason", anchor="middle", colour=RED, size=12),
        arrow(438, 195, 517, 195), text(477, 186, "shuffle", anchor="middle", colour=SOFT, size=11),
        text(477, 212, "by bucket", anchor="middle", colour=SOFT, size=11),
        frame(520, 140, 436, 150, "task of a bucket, one for each in every stage"),
        labelled(536, 172, 130, "stage", "operators on changes", **green),
        labelled(698, 172, 116, "egress", "pairs and encodes", **blue),
        labelled(846, 172, 96, "part", "of a sink, staged"),
        arrow(668, 195, 695, 195), arrow(816, 195, 843, 195),
        arrow(587, 220, 587, 240), arrow(615, 240, 615, 220),
        box(536, 242, 130, 36, fill=str(yellow["fill"]), stroke=str(yellow["stroke"])),
        text(601, 257, "traces", anchor="middle", bold=True),
        text(601, 271, "segments, cut by the CTI", anchor="middle", colour=SOFT, size=9),
        box(16, 308, 940, 66, fill=str(yellow["fill"]), stroke=str(yellow["stroke"])),
        text(32, 346, "a commit names", bold=True),
        *(text(170 + 396 * (i % 2), 334 + 24 * (i // 2), f"· {words}", size=12) for i, words in enumerate(named)),
    ]  # fmt: skip
    return picture(972, 390, "The way of an event", *parts)


STREAM = """
    kind    | le | re | re_new | payload
    insert  | 1  | ∞  |        | P1
    retract | 1  | ∞  | 10     | P1
    retract | 1  | 10 | 5      | P1
    insert  | 4  | 9  |        | P2
"""


def retraction() -> str:
    """An insert whose end is unknown at first, and the history that is left."""
    x, right = (lambda t: 260 + 44.0 * t), 760.0

    def ends(t: int) -> float:
        return right if t == hr.INFINITY else x(t)

    parts = [text(16, 30, "An insert is retracted, twice", bold=True, size=16)]
    rows = events_table(STREAM).to_pylist()
    for i, row in enumerate(rows):
        y = 64 + 34 * i
        colour = BLUE if row["payload"] == "P1" else GREEN
        end = row["re_new"] if row["re_new"] is not None else row["re"]
        new = f" → {row['re_new']}" if row["re_new"] is not None else ""
        until = "∞" if row["re"] == hr.INFINITY else str(row["re"])
        parts.append(text(16, y + 5, f"{row['kind']} [{row['le']}, {until}){new}  {row['payload']}", size=13))
        if row["re_new"] is not None:
            parts.append(bar(x(row["le"]), ends(row["re"]), y, SOFT, ghost=True, endless=row["re"] == hr.INFINITY))
        parts.append(bar(x(row["le"]), ends(end), y, colour, endless=end == hr.INFINITY))
    top = 64 + 34 * len(rows) + 6
    parts += [line(16, top - 12, right, top - 12), text(16, top + 15, "what is left: the history (CHT)", bold=True)]
    for i, row in enumerate(hr.events(STREAM).cht().to_pylist()):
        colour = BLUE if row["payload"] == "P1" else GREEN
        y = top + 12 + 26 * i
        parts += [bar(x(row["le"]), x(row["re"]), y, colour), text(x(row["re"]) + 12, y + 5, row["payload"])]
    bottom = top + 76
    parts += [text(x(t), bottom, str(t), anchor="middle", colour=SOFT, size=11) for t in range(12)]
    return picture(784, int(bottom + 14), "An insert is retracted twice", *parts)


PRICES = """
    kind   | le | re | price
    insert | 3  | 4  | 10
    insert | 14 | 15 | 16
    insert | 33 | 34 | 20
    insert | 12 | 13 | 40
"""


def correction() -> str:
    """A late event changes the answers of the windows it belongs to, and of no others."""
    averages = hr.events(PRICES, batches=[3, 1]).window(hr.hopping(20, every=10)).aggregate(avg=hr.avg("price"))
    early, late = (changes for changes, _ in averages.run().results["out"].batches[:2])
    first = {int(le): row["avg"] for le, row in zip(early.le, early.payload.to_pylist(), strict=True)}
    fixed = {int(a): r["avg"] for a, w, r in zip(late.le, late.weight, late.payload.to_pylist(), strict=True) if w > 0}
    left, step = 150.0, 13.0

    def x(t: int) -> float:
        return left + step * (t + 10)

    *prices, straggler = [(row["le"], row["price"]) for row in events_table(PRICES).to_pylist()]
    parts = [text(16, 30, "A late event corrects the windows it belongs to", bold=True, size=16)]
    parts += [text(16, 124, "price, by its time"), line(x(-10), 120, x(42), 120)]
    for t in range(-10, 41, 10):
        parts += [line(x(t), 116, x(t), 124), text(x(t), 142, str(t), anchor="middle", colour=SOFT, size=11)]
    for at, price in prices:
        parts += [dot(x(at), 120, BLUE), text(x(at), 104, f"{price:g}", anchor="middle", colour=BLUE)]
    at, price = straggler
    parts += [dot(x(at), 120, RED), arrow(x(at), 76, x(at), 112, RED)]
    parts.append(text(x(at), 68, f"{price:g}, arrives last", colour=RED, anchor="middle", bold=True))
    for i, (start, value) in enumerate(sorted(first.items())):
        y = 172 + 34 * i
        changed = start in fixed
        parts.append(bar(x(start), x(start + 20), y, YELLOW if changed else GREEN))
        parts.append(text(16, y + 5, f"window [{start}, {start + 20})"))
        answer = f"{value:g} → {fixed[start]:g}" if changed else f"{value:g}"
        parts.append(text(x(start + 20) + 14, y + 5, answer, colour=YELLOW if changed else INK, bold=changed))
    return picture(860, 172 + 34 * len(first) + 4, "A late event corrects the windows it belongs to", *parts)


def timeline() -> str:
    """The answers of the README's query, as `plot` draws them."""
    ticks = hr.events(
        """
        le                   | symbol | price | quantity
        2024-05-01T12:00:01Z | A      | 10.0  | 100
        2024-05-01T12:00:04Z | B      | 50.0  | 10
        2024-05-01T12:00:12Z | A      | 12.0  | 300
        2024-05-01T12:00:05Z | A      | 11.0  | 100
        2024-05-01T12:00:31Z | B      | 54.0  | 30
        """,
        progress=hr.advance(delay="10 s"),
    )
    worth = hr.sum(hr.col("price") * hr.col("quantity")) / hr.sum("quantity")
    vwap = ticks.group_by("symbol").window(hr.hopping("60 s", every="10 s")).aggregate(vwap=worth, n=hr.count())
    return vwap.plot("symbol", title="vwap").svg


WINDOWS = {
    "tumbling(5)": hr.tumbling(5),
    "hopping(4, every=2)": hr.hopping(4, every=2),
    "hopping(2, every=5)": hr.hopping(2, every=5),
    "snapshot()": hr.snapshot(),
    "count_by_start(2)": hr.count_by_start(2),
    "count_by_end(2)": hr.count_by_end(2),
    "session(3)": hr.session(3),
}


def windows() -> str:
    """Three events, and the windows of each kind with their members."""
    events = hr.events("le | re | name \n 1 | 4 | a \n 2 | 8 | b \n 6 | 9 | c")

    def x(t: int) -> float:
        return 210 + 40.0 * (t + 2)

    def across(left: int, right: int, y: float, words: str, colour: str) -> str:
        middle = text((x(left) + x(right)) / 2, y - 8, words, anchor="middle", colour=colour, size=12)
        return bar(x(left), x(right), y, colour) + middle

    parts = [text(16, 30, "The windows of three events", bold=True, size=16), text(16, 69, "events")]
    parts += [across(e["le"], e["re"], 64 + 24 * i, e["name"], INK) for i, e in enumerate(events.cht().to_pylist())]
    top = 148.0
    for name, window in WINDOWS.items():
        answers = events.window(window).aggregate(names=hr.concat("name", "")).cht().to_pylist()
        ends: list[int] = []  # of the last window in each row
        parts.append(text(16, top + 5, name))
        for answer in answers:
            row = next((i for i, end in enumerate(ends) if end <= answer["le"]), len(ends))
            ends[row : row + 1] = [answer["re"]]
            parts.append(across(answer["le"], answer["re"], top + 26 * row, answer["names"], BLUE))
        top += 26 * len(ends) + 14
    for t in range(-2, 13):
        parts += [line(x(t), 48, x(t), top - 18, more=' opacity="0.3"')]
        parts += [text(x(t), top, str(t), anchor="middle", colour=SOFT, size=11)]
    return picture(840, int(top + 16), "The windows of three events", *parts)


class Sees(hr.Operator):
    """Tells what it sees of an event, in an output that lasts from 3 after the window's start to the event's end."""

    input = "name STRING"
    output = "le_seen LONG, re_seen LONG"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(window.le + 3, e.re, e.le, e.re) for e in events]


def policies() -> str:
    """What a module sees of an event under each clipping, and what lifetimes its outputs get."""

    def x(t: int) -> float:
        return 230 + 16.0 * (t - 6)

    def answer(**policy: Any) -> dict[str, int]:
        stream = hr.events("le | re | name \n 6 | 27 | e").window(hr.hopping(10, every=1000, origin=10), **policy)
        return dict(stream.operate(Sees()).cht().to_pylist()[0])

    parts = [
        text(16, 30, "An event [6, 27), seen from the window [10, 20)", bold=True, size=16),
        box(x(10), 46, x(20) - x(10), 318, fill="#f7fafc", stroke=SOFT, radius=2),
        text(x(15), 62, "window", size=11, anchor="middle", colour=SOFT),
        text(16, 85, "the event"),
        bar(x(6), x(27), 80, INK),
        text(16, 124, "what the module sees of it", colour=BLUE, bold=True),
    ]
    for i, clipping in enumerate(("none", "left", "right", "full")):
        y, found = 150 + 26 * i, answer(clipping=clipping)
        parts += [text(16, y + 5, f"clipping={clipping!r}"), bar(x(found["le_seen"]), x(found["re_seen"]), y, BLUE)]
    parts.append(text(16, 272, "what becomes of its output [13, 27)", colour=GREEN, bold=True))
    for i, stamping in enumerate(("unchanged", "clip", "align")):
        y, found = 298 + 26 * i, answer(timestamping=stamping)
        parts += [text(16, y + 5, f"timestamping={stamping!r}"), bar(x(found["le"]), x(found["re"]), y, GREEN)]
    return picture(600, 380, "Clipping and timestamping", *parts)


def verification() -> str:
    """From what is to be tried to the verdict: one query, asked in ways that must agree."""

    def step(x: float, y: float, name: str, *what: str, fill: str = PAPER, stroke: str = SOFT) -> str:
        words = [text(x + 75, y + 42 + 15 * i, w, anchor="middle", colour=SOFT, size=11) for i, w in enumerate(what)]
        return box(x, y, 150, 66, fill=fill, stroke=stroke) + text(x + 75, y + 24, name, anchor="middle", bold=True) + (
            "".join(words)
        )  # fmt: skip

    ways = [
        ("live", "batches, buckets", "corrections"),
        ("batch SQL", "over the history", "of the streams"),
        ("another way", "twins, restarts,", "other order, …"),
    ]
    parts = [
        text(16, 34, "What is tried, and what it is compared with", bold=True, size=16),
        step(16, 140, "intent", "what to try, in words", "the rest is open", fill="#ebf8ff", stroke=BLUE),
        arrow(168, 152, 211, 116), arrow(168, 194, 211, 230),
        step(216, 76, "query", "every pair of options,", "or your own"),
        step(216, 204, "streams", "legal, seeded,", "late and revised"),
    ]  # fmt: skip
    for i, (name, *what) in enumerate(ways):
        y = 56 + 84 * i
        fill, stroke = ("#f0fff4", GREEN) if i == 0 else ("#fffff0", YELLOW)
        parts += [step(440, y, name, *what, fill=fill, stroke=stroke)]
        parts += [line(368, y, 400, 172, colour=INK, width=1.5) for y in (109, 237)] if i == 0 else []
        parts += [arrow(400, 172, 436, y + 33), arrow(592, y + 33, 652, 172)]
    parts += [
        step(656, 140, "the same history?", "and promises kept", fill="#ebf8ff", stroke=BLUE),
        arrow(731, 208, 731, 268, RED),
        text(742, 242, "no", colour=RED),
        step(656, 272, "smallest streams", "as a drawn table,", "and the seed", stroke=RED),
        line(654, 324, 291, 324, colour=RED, width=1.5),
        arrow(291, 324, 291, 274, RED),
        text(472, 344, "fewer events, smaller times, as long as it fails", anchor="middle", colour=RED, size=12),
    ]
    return picture(822, 358, "What is tried, and what it is compared with", *parts)


@cache
def example(name: str) -> dict[str, Any]:
    """What a numbered example has computed."""
    with redirect_stdout(StringIO()):
        return runpy.run_path(str(Path(__file__).parents[1] / "examples" / name))


def network() -> str:
    """Which sites reach each other, as it was known before the last news and as it is in the end."""
    told = example("13_network.py")
    known, until = told["known"], told["UNTIL"]
    pairs = ["hq – north", "hq – south", "east – hq", "hq – plant", "east – plant", "plant – south"]

    def x(t: int) -> float:
        return 150 + 22.0 * min(t, until)

    def bars(found: Iterable[tuple[str, int, int]], pair: str, y: float, *, ghost: bool) -> list[str]:
        colour = SOFT if ghost else GREEN
        spans = [(le, re) for name, le, re in found if name == pair]
        return [bar(x(le), x(re), y, colour, ghost=ghost, endless=re > until) for le, re in spans]

    parts = [
        text(16, 30, "Which sites reach each other while links fail", bold=True, size=16),
        text(16, 50, "solid: in the end; dashed: before the late news and the correction", colour=SOFT, size=12),
    ]
    bottom = 114.0 + 44 * len(pairs)
    for at, what, colour, row in [
        (8, "north – east fails", RED, 0), (10, "and is mended, which is known late", BLUE, 1),
        (12, "a line south – plant is leased …", GREEN, 2), (20, "… until here", GREEN, 2),
        (16, "hq – south fails …", SOFT, 0), (23, "… no, here", RED, 0),
    ]:  # fmt: skip
        parts.append(line(x(at), 78 + 14 * row, x(at), bottom - 6, colour=colour, more=' stroke-dasharray="2 3"'))
        parts.append(text(x(at) + 3, 76 + 14 * row, what, colour=colour, size=10))
    for i, pair in enumerate(pairs):
        y = 128 + 44 * i
        parts.append(text(16, y + 5, pair))
        parts += bars(known[-1], pair, y, ghost=False) + bars(known[3], pair, y + 15, ghost=True)
    parts += [text(x(t), bottom + 8, str(t), anchor="middle", colour=SOFT, size=11) for t in range(0, until + 1, 4)]
    return picture(800, int(bottom + 20), "Which sites reach each other while links fail", *parts)


def bill_of_materials() -> str:
    """What a bike costs over time, before and after a price is corrected."""
    told = example("14_bill_of_materials.py")
    first = history(told["cost"].run().results["out"].batches[0][0]).to_pylist()
    before = sorted((row["le"], row["cost"]) for row in first if row["whole"] == "bike")
    after = told["steps"](told["cost"])

    def place(t: float, cost: float) -> tuple[float, float]:
        return 70 + 20.0 * t, 300 - 9.0 * (cost - 60)

    def curve(steps: list[tuple[int, float]], colour: str, more: str = "") -> str:
        corners: list[tuple[float, float]] = []
        for (begin, cost), end in zip(steps, [t for t, _ in steps[1:]] + [32], strict=True):
            corners += [place(begin, cost), place(end, cost)]
        points = " ".join(f"{x:g},{y:g}" for x, y in corners)
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="3"{more}/>'

    parts = [text(16, 30, "What a bike costs, part by part", bold=True, size=16)]
    for cost in range(60, 90, 5):
        (x, y), right = place(0, cost), place(32, cost)[0]
        parts += [
            line(x, y, right, y, colour="#e4e7eb"),
            text(x - 8, y + 4, str(cost), anchor="end", colour=SOFT, size=11),
        ]
    parts += [text(place(t, 60)[0], 318, str(t), anchor="middle", colour=SOFT, size=11) for t in range(0, 33, 4)]
    parts += [curve(before, SOFT, ' stroke-dasharray="5 4"'), curve(after, BLUE)]
    for (at, cost), what in zip(after[1:], ["tubes", "spokes", "fewer bolts", "spokes"], strict=True):
        x, y = place(at, cost)
        parts += [dot(x, y, BLUE), text(x + 8, y + 18, what, colour=BLUE, size=12)]
    x, y = place(8, before[1][1])
    parts.append(text(x - 10, y + 4, "before tubes were corrected", colour=SOFT, size=11, anchor="end"))
    return picture(740, 332, "What a bike costs, part by part", *parts)


def money_chains() -> str:
    """A day of transfers between accounts, and the chains among them."""
    told = example("15_money_chains.py")
    people, planted, reversed_ = told["PEOPLE"], told["planted"], told["REVERSED"]

    def x(minute: float) -> float:
        return 60 + minute / 2

    def y(name: str) -> float:
        return 66 + 22.0 * people.index(name)

    def chain(hops: list[Any], colour: str, more: str = "") -> list[str]:
        rests = pairwise(hops)
        parts = [line(x(a[0]), y(a[2]), x(b[0]), y(a[2]), colour=colour, width=3, more=more) for a, b in rests]
        return parts + [
            line(x(at), y(payer), x(at), y(payee), colour=colour, width=2, more=more) + dot(x(at), y(payee), colour)
            for at, payer, payee, _ in hops
        ]

    parts = [text(16, 30, "Money that is passed on, among all transfers of a day", bold=True, size=16)]
    for name in people:
        parts += [text(16, y(name) + 4, name), line(x(0), y(name), x(1440), y(name), colour="#e4e7eb")]
    parts += [line(x(at), y(a), x(at), y(b), colour="#cbd2d9") for at, a, b, _ in told["usual"]]
    found = told["found"]["way"].split(" → ")
    mine = [hop for hop in planted if hop[1] in found and hop[2] in found]
    other = [hop for hop in planted if hop not in mine]
    parts += chain(mine, RED) + chain(other, YELLOW, ' stroke-dasharray="4 3"')
    bottom = y(people[-1]) + 24
    parts += [text(x(h * 60), bottom, f"{h}:00", anchor="middle", colour=SOFT, size=11) for h in range(0, 25, 3)]
    parts.append(
        text(x(mine[-1][0]) + 10, y(mine[-1][2]) + 16, "found: five hops within two hours", colour=RED, size=12)
    )
    what = f"taken back: {reversed_[1]} → {reversed_[2]} was reversed"
    parts.append(text(x(other[-1][0]) + 10, y(other[-1][2]) + 16, what, colour=YELLOW, size=12))
    return picture(880, int(bottom + 14), "Money that is passed on", *parts)


PICTURES: dict[str, Callable[[], str]] = {
    "way_of_an_event.svg": way_of_an_event,
    "retraction.svg": retraction,
    "correction.svg": correction,
    "timeline.svg": timeline,
    "windows.svg": windows,
    "policies.svg": policies,
    "verification.svg": verification,
    "network.svg": network,
    "bill_of_materials.svg": bill_of_materials,
    "money_chains.svg": money_chains,
}


def main() -> None:
    """Write every picture."""
    folder = Path(__file__).parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
