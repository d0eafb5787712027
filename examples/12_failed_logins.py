"""Sessions of failed log-ins, as a timeline: three failures or more and then a success, within ten minutes.

Log-ins are generated, and a tenth of them is reported two minutes late. So an alarm may be raised, and retracted when
an earlier success is reported late. The same pattern in SQL gives the same alarms.
"""

import random

import headrace as hr
from headrace import col, count

MINUTE = 60_000_000
USERS = ("ann", "bob", "cyd", "dan")

# All users log in now and then and may mistype their passwords; from minute 20 to 30 an attacker guesses cyd's.
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

# The output along the way: alarms that were retracted when late reports arrived.
kinds = [row["kind"] for row in done.events().to_pylist()]
print(f"\n{kinds.count('insert')} alarms raised, {kinds.count('retract')} of them retracted")
assert kinds.count("insert") - kinds.count("retract") == done.cht().num_rows > 0
assert kinds.count("retract") > 0

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

in_sql = hr.sql(
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
assert hr.same_history(in_sql.cht(), alarms.select("user", "failures").cht())
