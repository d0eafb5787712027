"""The messages of logical decoding, written by hand: what each becomes, and what a transaction leaves of several."""

from __future__ import annotations

import struct

import pytest

from headrace.adapters.postgres.pgoutput import LogDecoder, whole_transactions
from headrace.errors import SourceError
from headrace.schema import Schema

OID = 77
COLUMNS = ("id", "name", "price")
UNCHANGED = object()


def begin(lsn: int, micros: int = 5) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, micros, 1)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 5)


def relation(columns: tuple[str, ...] = COLUMNS, oid: int = OID) -> bytes:
    body = b"".join(b"\1" + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in columns)
    return b"R" + struct.pack(">I", oid) + b"public\0t\0d" + struct.pack(">H", len(columns)) + body


def row(values: tuple[object, ...]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None or value is UNCHANGED:
            parts.append(b"n" if value is None else b"u")
        else:
            text = str(value).encode()
            parts.append(b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


def insert(*values: object, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(values)


def update(*values: object, old: tuple[object, ...] | None = None, kind: bytes = b"K") -> bytes:
    before = b"" if old is None else kind + row(old)
    return b"U" + struct.pack(">I", OID) + before + b"N" + row(values)


def delete(*values: object, kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", OID) + kind + row(values)


def decoder(start: int = 0, end: int = 1000, columns: str = "id LONG, name STRING, price DOUBLE") -> LogDecoder:
    return LogDecoder(OID, Schema.of(columns), ("id",), start, end, frozenset(COLUMNS))


def rows(*messages: bytes, lsn: int = 100) -> list[tuple[object, ...]]:
    """The change, the id, the name and the price of each row of one transaction."""
    block = decoder().decode([begin(lsn), relation(), *messages, commit(lsn)])
    assert block.refused.num_rows == 0, block.refused.to_pylist()
    table = block.table
    return list(zip(*(table[n].to_pylist() for n in ("_change_type", "id", "name", "price")), strict=True))


def test_an_insert_an_update_and_a_delete():
    assert rows(insert(1, "a", 1.5), update(2, "b", None), delete(3, None, None)) == [
        ("insert", 1, "a", 1.5),
        ("update", 2, "b", None),
        ("delete", 3, None, None),
    ]


def test_texts_keep_their_letters_and_empty_is_not_null():
    assert rows(insert(1, "", None), insert(2, "žluť\n\t'\"\\", None)) == [
        ("insert", 1, "", None),
        ("insert", 2, "žluť\n\t'\"\\", None),
    ]


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert():
    assert rows(update(2, "a", 1.0, old=(1, None, None))) == [("delete", 1, None, None), ("insert", 2, "a", 1.0)]


def test_an_update_with_the_whole_old_row_and_the_same_key_stays_an_update():
    assert rows(update(1, "b", 1.0, old=(1, "a", 1.0), kind=b"O")) == [("update", 1, "b", 1.0)]


def test_a_delete_with_the_whole_old_row_has_its_values():
    assert rows(delete(1, "a", 2.0, kind=b"O")) == [("delete", 1, "a", 2.0)]


@pytest.mark.parametrize(
    ("messages", "net"),
    [
        ((insert(1, "a", 1), update(1, "b", 2)), [("insert", 1, "b", 2.0)]),
        ((insert(1, "a", 1), delete(1, None, None)), []),
        ((insert(1, "a", 1), delete(1, None, None), insert(1, "c", 3)), [("insert", 1, "c", 3.0)]),
        ((update(1, "a", 1), update(1, "b", 2)), [("update", 1, "b", 2.0)]),
        ((update(1, "a", 1), delete(1, None, None)), [("delete", 1, None, None)]),
        ((delete(1, None, None), insert(1, "b", 2)), [("update", 1, "b", 2.0)]),
        ((delete(1, None, None), insert(1, "b", 2), delete(1, None, None)), [("delete", 1, None, None)]),
        # keys 1 and 2 change places by way of 3
        (
            (update(3, "a", 1, old=(1, None, None)), update(1, "b", 2, old=(2, None, None)),
             update(2, "a", 1, old=(3, None, None))),
            [("update", 1, "b", 2.0), ("update", 2, "a", 1.0)],
        ),
    ],
)  # fmt: skip
def test_of_several_changes_of_a_key_in_a_transaction_the_net_change_is_left(
    messages: tuple[bytes, ...], net: list[tuple[object, ...]]
):
    assert rows(*messages) == net


def test_changes_of_a_key_in_two_transactions_stay_two():
    block = decoder().decode(
        [begin(100), relation(), insert(1, "a", 1), commit(100), begin(200), update(1, "b", 2), commit(200)]
    )
    assert block.table["_change_type"].to_pylist() == ["insert", "update"]
    assert block.table["_lsn"].to_pylist() == [100, 200] == block.rows.tolist()


def test_a_range_has_the_transactions_whose_commits_begin_in_it():
    messages = [relation()]
    for lsn in (100, 200, 300):
        messages = [*messages, begin(lsn), insert(lsn, "a", 1), commit(lsn)]
    messages = [messages[1], messages[0], *messages[2:]]
    assert decoder(200, 300).decode(messages).table["id"].to_pylist() == [200]
    assert decoder(101, 301).decode(messages).table["id"].to_pylist() == [200, 300]


def test_commit_times_are_counted_from_the_year_2000():
    block = decoder().decode([begin(1, 7), relation(), insert(1, "a", 1), commit(1)])
    assert block.arrived is not None
    assert block.arrived.tolist() == [946_684_800_000_007]
    assert str(block.table["_commit_time"][0].as_py()) == "2000-01-01 00:00:00.000007+00:00"


def test_columns_go_by_name_when_they_change_between_blocks():
    one = decoder(columns="id LONG, price DOUBLE, name STRING")
    first = one.decode([begin(100), relation(("id", "name")), insert(1, "a"), commit(100)])
    assert first.table.to_pylist()[0]["price"] is None  # the column was added later
    second = one.decode([begin(200), relation(("price", "id", "name")), insert(2.5, 2, "b"), commit(200)])
    third = one.decode([begin(300), insert(3.5, 3, "c"), commit(300)])  # described before
    assert [(r["id"], r["price"], r["name"]) for b in (second, third) for r in b.table.to_pylist()] == [
        (2, 2.5, "b"),
        (3, 3.5, "c"),
    ]


def test_a_column_that_neither_the_log_nor_the_table_has_is_an_error():
    one = LogDecoder(OID, Schema.of("id LONG, other STRING"), ("id",), 0, 1000, frozenset(COLUMNS))
    with pytest.raises(SourceError, match="dropped or renamed: other"):
        one.decode([begin(1), relation(), insert(1, "a", 1), commit(1)])


def test_changes_of_other_tables_are_not_read():
    messages = [begin(1), relation(oid=5), insert(9, "x", 1, oid=5), relation(), insert(1, "a", 1), commit(1)]
    assert decoder().decode(messages).table["id"].to_pylist() == [1]


def test_a_value_that_the_log_omits_comes_from_the_old_row():
    assert rows(update(1, UNCHANGED, 2, old=(1, "long", 1), kind=b"O")) == [("update", 1, "long", 2.0)]


def test_a_value_that_the_log_omits_comes_from_an_earlier_change_of_the_transaction():
    assert rows(insert(1, "long", 1), update(1, UNCHANGED, 2), update(1, UNCHANGED, 3), insert(2, "b", 1)) == [
        ("insert", 1, "long", 3.0),
        ("insert", 2, "b", 1.0),
    ]


def test_a_value_that_the_log_omits_everywhere_refuses_its_row_alone():
    block = decoder().decode([begin(1), relation(), update(1, UNCHANGED, 2), insert(2, "b", 1), commit(1)])
    assert block.table["id"].to_pylist() == [2]
    refused = block.refused.to_pylist()[0]
    assert (refused["row"], "'name'" in refused["reason"], "REPLICA IDENTITY FULL" in refused["reason"]) == (
        1,
        True,
        True,
    )


def test_an_omitted_value_that_is_deleted_later_in_the_transaction_refuses_nothing():
    assert rows(update(1, UNCHANGED, 2), delete(1, None, None)) == [("delete", 1, None, None)]


def test_a_value_that_does_not_fit_refuses_its_row_with_its_offset():
    block = decoder(columns="id LONG, name LONG").decode(
        [begin(100), relation(), insert(1, "7", 1), insert(2, "x", 1), commit(100)]
    )
    assert block.table["name"].to_pylist() == [7]
    assert block.refused["row"].to_pylist() == [100]
    assert "'x' is not of type LONG" in block.refused["reason"][0].as_py()


def test_a_truncated_table_is_a_refused_row():
    truncate = b"T" + struct.pack(">IBII", 2, 0, 5, OID)
    block = decoder().decode([begin(100), relation(), truncate, commit(100)])
    assert block.table.num_rows == 0
    assert block.refused["row"].to_pylist() == [100]
    assert "truncated" in block.refused["reason"][0].as_py()
    other = b"T" + struct.pack(">IBI", 1, 0, 5)
    assert decoder().decode([begin(100), relation(), other, commit(100)]).refused.num_rows == 0


def test_booleans_are_t_and_f():
    block = decoder(columns="id LONG, name BOOLEAN").decode(
        [begin(1), relation(), insert(1, "t", 1), insert(2, "f", 1), insert(3, None, 1), commit(1)]
    )
    assert block.table["name"].to_pylist() == [True, False, None]


def test_nothing_is_an_empty_block():
    assert decoder().decode([]).table.num_rows == 0
    assert decoder().decode([begin(1), commit(1)]).table.schema.names == [
        "id",
        "name",
        "price",
        "_change_type",
        "_commit_time",
        "_lsn",
    ]


def test_whole_transactions_end_with_a_commit():
    assert whole_transactions([begin(1), insert(1), commit(1), begin(2), insert(2)]) == 3
    assert whole_transactions([begin(1), insert(1)]) == 0
