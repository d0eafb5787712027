"""Sources on an object store are listed from the last names on, and nothing is lost, whatever the names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.host.driving.positions import FilePositions
from headrace.io import new_names
from headrace.io.files import FileOrder, ListedFile, in_order
from headrace.plan.nodes import Source

PLACE = "s3://bucket/in"


class Store:
    """The files of a source, in memory; it remembers where its listings began."""

    def __init__(self, patch: pytest.MonkeyPatch, page: int = 1000, again: int = 200) -> None:
        self.files: dict[str, ListedFile] = {}
        self.now = 0.0
        self.starts: list[str] = []
        self.requests = 0
        self.page = page
        patch.setattr(new_names, "listing", self.listing)
        patch.setattr(new_names, "_PAGE", page)
        patch.setattr(new_names, "_AGAIN", again)

    def add(self, name: str) -> str:
        path = f"{PLACE}/{name}"
        self.files[path] = ListedFile(10**9 + len(self.files), path, 1)
        return path

    def listing(self, path: str, order: FileOrder, after: str = "") -> list[ListedFile]:
        assert path == PLACE
        self.starts.append(after)
        found = [file for file in self.files.values() if file.path > after]
        self.requests += len(found) // self.page + 1
        return in_order(found, order)

    def positions(self, order: FileOrder = "time", most: int | None = None) -> FilePositions:
        node = hr.read_csv(f"{PLACE}/*", "t LONG", lifetime=hr.point("t"), order=order).node
        assert isinstance(node, Source)
        read = FilePositions(node, most)
        read._names = new_names.NewNames(PLACE, order, clock=lambda: self.now)
        return read


def take(read: FilePositions, *, thorough: bool = False) -> list[str]:
    files = read.pending(thorough=thorough)
    read.take(files)
    return [file.path for file in files]


@pytest.fixture
def patch() -> pytest.MonkeyPatch:
    with pytest.MonkeyPatch.context() as context:
        yield context


@pytest.mark.parametrize("name", ["{:06}.csv", "day={:04}/{:06}.csv"])
@pytest.mark.parametrize("order", ["time", "name"])
def test_names_that_grow_are_listed_from_one_of_the_last_on(patch: pytest.MonkeyPatch, name: str, order: FileOrder):
    """5,000 files and one more with each of 300 batches: about two requests a batch, not six."""
    store = Store(patch)
    names = (name.format(number // 100, number) if "day" in name else name.format(number) for number in range(9000))
    for _ in range(5000):
        store.add(next(names))
    read = store.positions(order)
    assert len(take(read)) == 5000
    store.requests = 0
    for _ in range(300):
        path = store.add(next(names))
        assert take(read) == [path]
    assert store.requests <= 2.1 * 300
    assert 30 <= store.starts.count("") <= 70
    assert read.read == 5300


def test_few_files_are_always_listed_whole(patch: pytest.MonkeyPatch):
    store = Store(patch)
    read = store.positions()
    for number in range(0, 900, 10):
        store.add(f"{number:06}.csv")
        take(read)
    assert set(store.starts) == {""}


def test_random_names_are_found_at_once(patch: pytest.MonkeyPatch):
    """Listings stay whole: with each of these names the order of names says nothing about what is new."""
    store = Store(patch, page=10, again=2)
    for number in range(50):
        store.add(f"{number * 7919 % 1009:04}.csv")
    read = store.positions()
    take(read)
    late = 0
    for number in range(50, 250):
        path = store.add(f"{number * 7919 % 1009:04}.csv")
        late += take(read) != [path]
        take(read, thorough=True)
    assert late <= 4
    assert read.read == 250


def test_random_names_in_folders_of_a_day_are_listed_from_the_folder_on(patch: pytest.MonkeyPatch):
    store = Store(patch, page=100, again=20)
    for number in range(4000):
        store.add(f"day={number // 100:03}/{number * 7919 % 100003:06}.csv")
    read = store.positions()
    take(read)
    store.requests = 0
    for number in range(4000, 4500):
        store.add(f"day={number // 100:03}/{number * 7919 % 100003:06}.csv")
        take(read)
    assert store.requests <= 5 * 500, "and not 43 with each of 500 listings"
    take(read, thorough=True)
    assert read.read == 4500


def test_a_late_name_is_found_soon_and_at_once_by_who_needs_all(patch: pytest.MonkeyPatch):
    store = Store(patch)
    for number in range(5000):
        store.add(f"2026-{number:06}.csv")
    read = store.positions()
    take(read)
    for number in range(5000, 5040):
        store.add(f"2026-{number:06}.csv")
        assert len(take(read)) == 1
    late = store.add("2025.csv")
    looks = [take(read) for _ in range(6)]
    assert [late] in looks, "six requests list all files, so there are at most six listings without it"
    for number in range(6000, 6040):
        store.add(f"2026-{number:06}.csv")
        take(read)
    store.add("2024.csv")
    assert take(read, thorough=True) == [f"{PLACE}/2024.csv"]


def test_a_late_name_is_found_after_ten_minutes(patch: pytest.MonkeyPatch):
    store = Store(patch, page=10, again=2)
    for number in range(10_000):
        store.add(f"b{number:06}.csv")
    read = store.positions()
    take(read)
    for number in range(10_000, 10_100):
        store.add(f"b{number:06}.csv")
        take(read)
    late = store.add("a.csv")
    assert take(read) == []
    store.now = 600.0
    assert take(read) == [late]


def test_what_waits_is_neither_forgotten_nor_gone(patch: pytest.MonkeyPatch):
    """Files of the first listing wait while later listings have only new ones."""
    store = Store(patch, page=10, again=2)
    for number in range(100):
        store.add(f"{number:06}.csv")
    read, order = store.positions(most=1), []
    for number in range(100, 400):
        store.add(f"{number:06}.csv")
        order += take(read)
    while more := take(read):
        order += more
    assert order == sorted(store.files)
    assert any(store.starts)
    assert read.news == {"old_files": 0, "changed_files": 0, "missing_files": 0}


def test_a_file_that_waits_and_is_removed_is_reported(patch: pytest.MonkeyPatch):
    store = Store(patch, page=10, again=5)
    for number in range(100):
        store.add(f"{number:06}.csv")
    read = store.positions(most=1)
    for number in range(100, 130):
        store.add(f"{number:06}.csv")
        take(read)
    del store.files[f"{PLACE}/000129.csv"]
    assert take(read)
    assert store.starts[-1]
    assert read.news["missing_files"] == 1


@given(
    st.lists(st.lists(st.sampled_from(range(400)), max_size=12), max_size=40),
    st.sampled_from(["time", "name"]),
    st.sampled_from([None, 1, 3]),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_file_is_read_once(
    arrivals: Sequence[Sequence[int]], order: FileOrder, most: int | None, thorough: Sequence[bool]
):
    """Names in any order, folders, batches of any size; a thorough look that finds nothing has read everything."""
    with pytest.MonkeyPatch.context() as patch:
        store = Store(patch, page=5, again=2)
        for number in range(20):
            store.add(f"x/{number:03}.csv")
        read, found = store.positions(order, most), []
        for names, sure in zip(arrivals, thorough, strict=False):
            for name in names:
                store.add(f"{'wxyz'[name // 100]}/{name % 100:03}-{len(store.files)}.csv")
            files = take(read, thorough=sure)
            found += files
            assert files or not sure or sorted(found) == sorted(store.files)
        while files := take(read, thorough=True):
            found += files
        assert sorted(found) == sorted(store.files)
        assert read.news == {"old_files": 0, "changed_files": 0, "missing_files": 0}
