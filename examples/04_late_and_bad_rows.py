"""Late rows and unreadable rows: both are diverted with the reason, and counted."""

import tempfile
from pathlib import Path

import headrace as hr

READINGS = """\
sensor,ts,celsius
a,2024-05-01T12:00:00Z,20.5
a,2024-05-01T12:00:30Z,21.5
a,2024-05-01T12:00:05Z,99.0
a,yesterday,20.0
b,2024-05-01T12:00:31Z,cold
"""

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "readings.csv")
    file.write_text(READINGS)
    readings = hr.read_csv(
        str(file),
        schema="sensor STRING, ts DATETIME, celsius DOUBLE",
        lifetime=hr.point("ts"),
        progress=hr.advance(delay="10 s", late="divert"),
    )
    averages = readings.window(hr.tumbling("1 min")).aggregate(celsius=hr.avg("celsius"))
    run = hr.run({"averages": averages, "diverted": readings.diverted()})

print(run.cht("averages").to_pandas().to_string())
for row in run.cht("diverted").to_pylist():
    print(row["line"], row["reason"], "|", row["row"])
(counts,) = run.counts.values()
print(counts)
assert (counts["rows"], counts["accepted"], counts["late"], counts["malformed"]) == (5, 2, 1, 2)
