"""Output batches on S3: whole, once, or not at all, without a rename."""

from __future__ import annotations

import pytest

from headrace.errors import SinkError
from headrace.io.object_batches import ObjectBatches


@pytest.fixture
def out(s3: str) -> ObjectBatches:
    return ObjectBatches(s3)


def content(out: ObjectBatches, batch: int | None = None) -> dict[str, bytes]:
    keys = [uri.removeprefix(f"{out.place}/") for uri in out.files(batch)]
    return {key: out.storage.read(key).to_pybytes() for key in keys}


def test_a_batch_has_its_parts_in_order_and_nothing_else_stays(out: ObjectBatches):
    parts = [out.stage(3, "part.jsonl", data) for data in (b"one", b"two")]
    out.stage(3, "part.jsonl", b"of an attempt that was given up")
    later = out.stage(4, "part.jsonl", b"later")
    assert out.committed() == []
    assert out.commit(3, parts, {"progress.jsonl": b"cti"})
    assert out.committed() == [3]
    folder = "batch-00000003"
    assert content(out) == {
        f"{folder}/part-00000.jsonl": b"one", f"{folder}/part-00001.jsonl": b"two", f"{folder}/progress.jsonl": b"cti",
    }  # fmt: skip
    assert out.storage.keys("_staging") == [later]


def test_a_batch_that_is_there_stays_as_it_is(out: ObjectBatches):
    parts = [out.stage(0, "part.jsonl", b"one")]
    assert out.commit(0, parts)
    assert not out.commit(0, parts)
    assert not out.commit(0, [out.stage(0, "part.jsonl", b"two")])
    assert list(content(out).values()) == [b"one"]


@pytest.mark.parametrize("moment", range(3))
def test_a_commit_that_was_broken_off_is_repeated(out: ObjectBatches, monkeypatch: pytest.MonkeyPatch, moment: int):
    parts = [out.stage(0, "part.jsonl", data) for data in (b"one", b"two")]
    left = moment

    def broken(name: str) -> None:
        call = getattr(out.storage, name)

        def before(*given: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return call(*given)

        patch.setattr(out.storage, name, before)

    with monkeypatch.context() as patch:
        broken("copy")
        broken("create")
        with pytest.raises(KeyboardInterrupt):
            out.commit(0, parts)
    assert out.committed() == []
    assert out.files() == []
    assert out.commit(0, parts)
    assert list(content(out).values()) == [b"one", b"two"]


def test_another_process_publishes_it_meanwhile(out: ObjectBatches, s3: str, monkeypatch: pytest.MonkeyPatch):
    parts = [out.stage(0, "part.jsonl", b"one")]
    copy = out.storage.copy

    def other_first(key: str, to: str) -> None:
        assert ObjectBatches(s3).commit(0, parts)
        copy(key, to)

    monkeypatch.setattr(out.storage, "copy", other_first)
    assert not out.commit(0, parts)
    assert list(content(out).values()) == [b"one"]


def test_parts_that_are_not_there_are_an_error(out: ObjectBatches):
    with pytest.raises(SinkError, match="is not a staged object"):
        out.commit(0, ["_staging/00000000-0-part.jsonl"])
    assert out.committed() == []


def test_it_is_the_output_of_one_query(out: ObjectBatches):
    out.claim("one", begun=False)
    out.claim("one", begun=True)
    assert out.taken
    with pytest.raises(SinkError, match="holds the output of another query"):
        out.claim("two", begun=False)
    out.release("two")
    assert out.belongs_to("one")
    out.release("one")
    out.claim("two", begun=False)
    out.commit(0, [out.stage(0, "part.jsonl", b"1")])
    out.release("two")
    assert out.belongs_to("two"), "what it has written is there"


def test_a_query_that_has_begun_needs_its_earlier_output(out: ObjectBatches):
    with pytest.raises(SinkError, match="is new, but the query has begun already"):
        out.claim("one", begun=True)
