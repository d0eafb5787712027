"""A first query: the volume-weighted average price per symbol, every ten seconds over the last minute.

The last trade but one arrives seven seconds late. It corrects earlier answers; the history shows the answers after all
corrections.
"""

import tempfile
from pathlib import Path

import headrace as hr
from headrace import col

TICKS = """\
symbol,ts,price,quantity
A,2024-05-01T12:00:01Z,10.0,100
B,2024-05-01T12:00:04Z,50.0,10
A,2024-05-01T12:00:12Z,12.0,300
A,2024-05-01T12:00:05Z,11.0,100
B,2024-05-01T12:00:31Z,54.0,30
"""

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "ticks.csv")
    file.write_text(TICKS)

    ticks = hr.read_csv(
        str(file),
        schema="symbol STRING, ts DATETIME, price DOUBLE, quantity INT",
        lifetime=hr.point("ts"),
        progress=hr.advance(delay="10 s", late="divert"),
    )
    vwap = (
        ticks.where(col("quantity") > 0)
        .group_by("symbol")
        .window(hr.hopping("60 s", every="10 s"))
        .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"), n=hr.count())
    )
    history = vwap.cht()

print(history.to_pandas().to_string())
assert history.num_rows == 16
