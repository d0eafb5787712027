"""Sessions of failed log-ins, as a timeline: three failures or more and then a success, within ten minutes.

Log-ins are generated, and a tenth of them is reported two minutes late. So an alarm may be raised, and taken back when
a success comes to light that lies between. The same pattern in SQL gives the same alarms.
"""

import random

import headrace as hr
from headrace import col, count

MINUTE = 60_000_000
USERS = ("ann", "bob", "cyd", "dan")

# Everybody logs in now and then; some forget their passwords, and from minute 20 to 30 somebody guesses that of cyd.
draw = random.Random(4)  # noqa: S311 - nothing is kept secret with it
logins = []
for user in USERS:
    for minute in sorted(draw.uniform(0, 60) for _ in range(70 if user == "cyd" else 25)):
        success = draw.random() < (0.3 if user == "cyd" and 20 < minute < 30 else 0.7)
        logins.append({"le": int(minute * MINUTE), "user": user, "ok": success})
reported = sorted(logins, key=lambda row: row["le"] + (2 * MINUTE if draw.random() < 0.1 else 0))
stream = hr.events(
    [row | {"re": row["le"] + 1} for row in reported], "user STRING, ok BOOLEAN", batches=[1] * len(reported)
)

guessed = hr.pattern("Failed{3,} In", define={"Failed": ~col("ok"), "In": col("ok")}, within="10 min")
alarms = stream.group_by("user").match(
    guessed, failures=count("Failed"), seconds=(col("le") - hr.first("le")) / 1_000_000
)
done = alarms.run()
print(done.cht().to_pandas().drop(columns="re").round(1).to_string())

# What was said along the way: alarms that were taken back when the late reports came.
told = [row["kind"] for row in done.events().to_pylist()]
print(f"\n{told.count('insert')} alarms raised, {told.count('retract')} of them taken back")
assert told.count("insert") - told.count("retract") == done.cht().num_rows > 0
assert told.count("retract") > 0

# A timeline, half a minute a character: · success, x failure, ! an alarm.
raised = {(row["user"], row["le"]) for row in done.cht().to_pylist()}
print(f"\n{'minute':<7}" + "".join(f"{minute:<20}" for minute in range(0, 60, 10)))
for user in USERS:
    marks = [" "] * 121
    for row in sorted((row for row in logins if row["user"] == user), key=lambda row: row["le"]):
        alarm = (user, row["le"]) in raised
        slot = 2 * row["le"] // MINUTE
        marks[slot] = "!" if alarm or marks[slot] == "!" else "·" if row["ok"] else "x"
    print(f"{user:<7}{''.join(marks).rstrip()}")

said = hr.sql(
    """
    SELECT user, failures FROM logins MATCH_RECOGNIZE (
        PARTITION BY user
        MEASURES count(Failed.*) AS failures
        PATTERN (Failed{3,} Success) WITHIN 10 min
        DEFINE Failed AS NOT ok, Success AS ok
    )
    """,
    logins=stream,
)
assert hr.same_history(said.cht(), alarms.select("user", "failures").cht())
