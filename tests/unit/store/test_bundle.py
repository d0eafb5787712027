"""Bundles: what was packed is found again, and whatever is done to a file, nothing wrong is read from it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import StoreError
from headrace.pieces import joined
from headrace.store.bundle import VERSION, Bundle, pack_bundle

BLOCKS = {"a": b"first", "empty": b"", "b": pa.py_buffer(b"x" * 100)}
META = {"batch": 7, "names": ["ü"]}


def packed() -> bytes:
    return joined(pack_bundle(BLOCKS, META).data)


def content(data: bytes, *, checksum: int | None = None) -> tuple[dict[str, bytes], object]:
    bundle = Bundle.open("data/7-1-x", pa.py_buffer(data), checksum=checksum)
    return {name: bundle.block(name).to_pybytes() for name in bundle.blocks}, bundle.meta


def test_what_was_packed_is_found_again():
    assert content(packed()) == ({"a": b"first", "empty": b"", "b": b"x" * 100}, META)
    assert content(joined(pack_bundle({}).data)) == ({}, {})


def test_blocks_begin_where_arrow_can_use_them():
    bundle = Bundle.open("f", pa.py_buffer(joined(pack_bundle({str(i): bytes(i) for i in range(130)}).data)))
    assert all(start % 64 == 0 for start, _, _ in bundle.blocks.values())


@pytest.mark.parametrize("length", range(len(packed())))
def test_a_file_that_was_cut_is_an_error_that_names_it(length: int):
    with pytest.raises(StoreError, match="data/7-1-x"):
        content(packed()[:length])


@pytest.mark.parametrize("bit", [0x01, 0x80, 0xFF])
def test_a_byte_that_was_changed_is_an_error_or_means_nothing(bit: int):
    whole, padding = packed(), 0
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= bit
        try:
            found = content(bytes(altered))
        except StoreError as error:
            found = str(error)
        assert found == content(whole) or "data/7-1-x" in found
        padding += found == content(whole)
    assert padding == (64 - 16) + (64 - 5) + (128 - 100)  # zeros behind the head and two blocks


def test_bytes_behind_the_end_are_an_error():
    with pytest.raises(StoreError, match="damaged"):
        content(packed() + b"\0")


def test_another_whole_file_is_not_the_one_that_was_meant():
    checksum = Bundle.open("f", pa.py_buffer(packed())).checksum
    assert content(packed(), checksum=checksum)
    with pytest.raises(StoreError, match="checksum"):
        content(joined(pack_bundle({"a": b"other"}, META).data), checksum=checksum)
    with pytest.raises(StoreError, match="were written"):
        Bundle.open("f", pa.py_buffer(packed()), length=3)


def test_a_newer_format_says_so():
    data = bytearray(packed())
    data[8] = VERSION + 1
    with pytest.raises(StoreError, match="newer Headrace"):
        content(bytes(data))


def test_a_block_that_is_not_there_is_an_error():
    with pytest.raises(StoreError, match="no block 'z'"):
        Bundle.open("f", pa.py_buffer(packed())).block("z")
