"""The size of batches follows from how long they take."""

from __future__ import annotations

from headrace.host.driving.pace import Pace


def after(pace: Pace, rate: float, waiting: int, batches: int = 20) -> float:
    """The seconds of a batch at a steady rate, after some batches."""
    for _ in range(batches):
        pace.note(pace.bound, 0.1 + pace.bound / rate, waiting)
    return 0.1 + pace.bound / rate


def test_batches_come_to_take_about_a_second_at_any_rate():
    for rate in (20_000, 300_000, 3_000_000):
        assert 0.8 < after(Pace.of_rows(), rate, waiting=1) < 1.3


def test_batches_take_longer_while_many_wait():
    assert 1.5 < after(Pace.of_rows(), 300_000, waiting=100_000_000) < 2.5


def test_a_batch_that_was_not_full_changes_nothing():
    pace = Pace.of_rows()
    pace.note(10, 5.0, waiting=0)
    assert pace.bound == Pace.of_rows().bound


def test_the_bound_at_most_doubles_and_has_limits():
    pace = Pace.of_rows()
    first = pace.bound
    pace.note(first, 1e-6, waiting=1)
    assert pace.bound == 2 * first
    assert after(pace, 1e12, waiting=1) > 0
    assert pace.bound == pace.most
    slow = Pace.of_rows()
    for _ in range(50):
        slow.note(slow.bound, 1000.0, waiting=1)
    assert slow.bound == slow.least


def test_a_bound_of_the_user_stays():
    pace = Pace.of_rows(500)
    pace.note(500, 0.001, waiting=10**9)
    assert pace.bound == 500


def test_batches_of_files_do_not_grow_under_too_much_input():
    """Input at three times the capacity: each batch finds what has arrived during the one before, and no more waits."""
    pace, rate, seconds = Pace.of_bytes(), 10_000_000, 1.0
    longest, behind = 0.0, 0.0
    for _ in range(50):
        behind += 3 * rate * seconds
        amount = min(behind, pace.bound)
        behind -= amount
        seconds = amount / rate
        longest = max(longest, seconds)
        pace.note(int(amount), seconds, int(behind))
    assert longest < 10
    assert seconds < 2.5


def test_a_slow_store_does_not_make_batches_of_files_small():
    """Each batch takes three seconds, whatever it reads: the query keeps up with 200 kB a second."""
    pace, behind = Pace.of_bytes(), 0.0
    for _ in range(100):
        behind += 3 * 200_000
        amount = min(behind, pace.bound)
        behind -= amount
        pace.note(int(amount), 3.0, int(behind))
    assert behind == 0
