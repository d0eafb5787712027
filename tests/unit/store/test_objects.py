"""Object stores: an S3 server that runs here, and what is said when one cannot be used."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import obstore
import pytest
from tests.fixtures.s3_server import KEY, SECRET, S3Server

from headrace.errors import StoreError
from headrace.pieces import Pieces
from headrace.store import objects
from headrace.store.environment import Environment
from headrace.store.log import Log
from headrace.store.objects import ObjectStorage
from headrace.store.remote import Unanswered


@pytest.fixture
def storage(s3: str) -> ObjectStorage:
    return ObjectStorage(s3)


# --- one of all who try creates a file --------------------------------------------------------------------------------


def contend(url: str, who: int, rounds: int) -> list[int]:
    storage = ObjectStorage(url)
    return [number for number in range(rounds) if storage.put(f"a/{number}", str(who).encode() * 1000)]


def judge(url: str, won: dict[int, list[int]], rounds: int) -> None:
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(rounds))
    storage = ObjectStorage(url)
    for who, numbers in won.items():
        for number in numbers:
            assert storage.read(f"a/{number}").to_pybytes() == str(who).encode() * 1000


@pytest.mark.slow
def test_of_many_threads_one_creates_a_file(s3: str):
    won: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda who=who: won.__setitem__(who, contend(s3, who, 50))) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    judge(s3, won, 50)


@pytest.mark.slow
def test_of_many_processes_one_creates_a_file(s3: str):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(contend, [(s3, who, 50) for who in range(4)], chunksize=1)
    judge(s3, dict(enumerate(found)), 50)


# --- lost answers -----------------------------------------------------------------------------------------------------


def test_a_file_that_is_found_taken_is_ones_own_if_it_has_the_same_content(storage: ObjectStorage):
    data = Pieces()
    for piece in (b"\xff" * 10, b"", b"two"):
        data.write(piece)
    assert storage.create("a/1", data)
    assert storage.create("a/1", data)
    assert not storage.create("a/1", b"\xff" * 10 + b"tw0")
    assert not storage.create("a/1", b"")


@pytest.mark.parametrize("happened", [True, False])
def test_a_write_without_an_answer_is_made_again(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, happened: bool
):
    put, losses = storage.put, iter([True, True, False])

    def lose(key: str, data: bytes) -> bool:
        if happened or not (lost := next(losses)):
            answer = put(key, data)
            lost = happened and next(losses)
        if lost:
            raise Unanswered("timeout")
        return answer

    monkeypatch.setattr(storage, "put", lose)
    assert storage.create("a/1", b"one")
    assert storage.read("a/1").to_pybytes() == b"one"


def test_two_starts_of_one_process_have_two_epochs_also_if_answers_are_lost(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
):
    """The second one finds the number taken: it must not take the file of the first for its own."""
    first, second = Log(storage), Log(storage)
    monkeypatch.setattr(second, "_newest_epoch", lambda: 0)
    assert [first.claim(), second.claim()] == [1, 2]


def test_a_server_that_does_not_answer_any_more_is_an_error_that_says_how_to_go_on(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> bool:
        raise Unanswered("connection refused")

    monkeypatch.setattr(storage, "put", refuse)
    with pytest.raises(StoreError, match=r"cannot write 'a/1'.*connection refused") as caught:
        storage.create("a/1", b"")
    assert "start again with this checkpoint" in caught.value.instead


# --- large files, other processes -------------------------------------------------------------------------------------


def test_a_large_file_is_read_in_parts(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "_PART", 1000)
    data = os.urandom(12_345)
    storage.create("a/1", data)
    assert storage.read("a/1").to_pybytes() == data


def test_it_reaches_the_store_from_a_process_whose_environment_says_nothing(
    storage: ObjectStorage, s3: str, monkeypatch: pytest.MonkeyPatch
):
    storage.create("a/1", b"one")
    nothing, environment = Environment(["state", "gs://bucket"]), Environment(["out", s3])
    assert KEY not in repr(environment)
    sent = pickle.dumps([storage, environment])
    assert SECRET.encode() not in pickle.dumps([storage, nothing])
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in pickle.loads(sent)[1]._values:  # noqa: S301 - it is ours
        monkeypatch.setenv(name, os.environ.pop(name))  # so that the test leaves nothing
    assert pickle.loads(sent)[0].read("a/1").to_pybytes() == b"one"  # noqa: S301


@pytest.mark.slow
def test_listings_of_more_than_a_page(storage: ObjectStorage, s3_server: S3Server):
    client, prefix = s3_server.client(), storage.place.rpartition("/")[2]
    for number in range(1005):
        obstore.put(client, f"{prefix}/a/{number:04d}", b"")
    assert storage.keys("a") == [f"a/{number:04d}" for number in range(1005)]
    assert storage.keys("a", after="a/1002") == ["a/1003", "a/1004"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_store_that_will_do_and_nothing_is_left(storage: ObjectStorage):
    storage.check()
    assert storage.keys("probes") == []


def test_a_store_that_overwrites_is_refused(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(storage, "put", lambda *_: True)
    with pytest.raises(StoreError, match="cannot create a file only if it is absent"):
        storage.check()


def test_a_store_without_conditional_writes_is_refused(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch):
    def unsupported(*_: object, **__: object) -> None:
        raise obstore.exceptions.NotSupportedError("put with mode create")

    monkeypatch.setattr(obstore, "put", unsupported)
    with pytest.raises(StoreError, match="cannot create a file only if it is absent"):
        storage.check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "wrong"}, "InvalidAccessKeyId"),
        ({"AWS_ACCESS_KEY_ID": None}, "Missing AccessKeyId"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "cannot be reached"),
        ({"AWS_ALLOW_HTTP": ""}, "set AWS_ALLOW_HTTP=true"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(
    s3: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None], said: str
):
    monkeypatch.setattr(objects, "_RETRIED", {"max_retries": 1})
    for name, value in change.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    storage = ObjectStorage(s3)
    with pytest.raises(StoreError, match=said) as caught:
        storage.check()
    assert "AWS_ACCESS_KEY_ID" in caught.value.instead
    shown = f"{caught.value!s} {caught.value!r} {storage!r} {storage.place}"
    assert SECRET not in shown
    assert KEY not in shown


def test_without_the_extra_it_says_what_to_install(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "obstore", None)
    with pytest.raises(StoreError, match="need the package obstore") as caught:
        storage.check()
    assert caught.value.instead == "pip install 'headrace[objects]'"


def test_file_systems_without_create_if_absent_are_refused():
    with pytest.raises(StoreError, match="a store cannot be on hdfs://") as caught:
        ObjectStorage("hdfs://name-node/folder")
    assert "s3://" in caught.value.allowed
