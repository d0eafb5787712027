"""Kinds of recursive queries (rules 9.1 to 9.3).

Nodes are small numbers, events of the second stream are links between them, so graphs have cycles and several ways from
one node to another. Derived events keep the text and the float of their seed.
"""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["LOOPS"]

#: Two links go out from every node; the event decides which. `{n}` is the number of nodes.
_LINK = (
    "{{b}}.select(src=hr.col('i') % {n}, "
    "dst=(hr.col('i') % {n} * 2 + hr.when(hr.col('x') > 0).then(1).otherwise(0)) % {n})"
)
_CYCLIC = {
    "many": _LINK.format(n=7),
    "few": _LINK.format(n=3),
    "forward": _LINK.format(n=5) + ".where(hr.col('src') < hr.col('dst'))",
    "brief": _LINK.format(n=5) + ".set_duration(4)",
}
_ACYCLIC = {
    "forward": _LINK.format(n=3) + ".where(hr.col('src') < hr.col('dst'))",
    "brief": _LINK.format(n=4) + ".set_duration(3).where(hr.col('src') < hr.col('dst'))",
}
_SEEDS = {"few": "{a}.where(hr.col('i') < 2)", "all": "{a}"}

_STEP = "f.join(links, on={{'i': 'src'}}).select('k', 'x', i=hr.col('dst'))" + PLAIN
_LEAST = ".group_by('i').window(hr.snapshot()).aggregate(k=hr.max('k'), x=hr.min('x'))" + PLAIN
#: Monotonic bodies: changes circulate.
_GROWING = {
    "step": _STEP,
    "filtered": f"{_STEP}.where(hr.col('k').is_not_null() | (hr.col('i') > 1))",
    "united": f"{_STEP}.union({{b}}.where(hr.col('i') > 2))",
    "itself": "f.join(f.select(src=hr.col('i'), dst=(hr.col('i') + 1) % 5), on={{'i': 'src'}})"
    ".select('k', 'x', i=hr.col('dst'))" + PLAIN,
    "per_key": "f.group_by('k').apply(lambda g: g.join(links, on={{'i': 'src'}}).select('x', i=hr.col('dst')))" + PLAIN,
    "unlike": f"{_STEP}.distinct().union(f.select('k', 'x', i=hr.col('i') % 2){PLAIN})",
}
#: Later input may retract earlier results.
_REVISING = {
    "least": f"{_STEP}{_LEAST}",
    "closed": f"{_STEP}.anti_join({{b}}.where(hr.col('x') < 0), on='k')",
    "ranked": f"{_STEP}.group_by('i').top(1, by='x')" + PLAIN,
    "inner": f"hr.recurse(f.where(hr.col('i') < 3), lambda f: {_STEP}).union({_STEP})",
}
_EACH = {
    "step": _STEP,
    "twice": f"{_STEP}.union(({_STEP}).where(hr.col('i') == 2))",
    "later": f"{_STEP}.shift(2).cap_duration(6)",
    "points": f"{_STEP}.point_at_start().extend(3)",
}


def _loop(options: str = "") -> str:
    return f"(lambda links: hr.recurse({{seed}}, lambda f: {{body}}{options}))({{links}}){PLAIN}"


_FEW = {"seed": ("few",)}
LOOPS = (
    written("recurse", 2, _loop(), _FEW, seed=_SEEDS, links=_CYCLIC, body={**_GROWING, **_REVISING}),
    written("recurse_all", 2, _loop(", distinct=False"), _FEW, seed=_SEEDS, links=_ACYCLIC, body=_EACH),
)
