"""Clients of librdkafka that a process keeps, and its errors as ours.

Adapters are values; the clients that they need belong to the process. A client takes some threads, a connection and
about 50 ms until its first answer, so it is kept and used again by every adapter with the same options. A child process
that was forked cannot use the clients of its parent: it starts with none, and never ends its parent's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import HeadraceError, PlanError, SinkError, SourceError, Unavailable

__all__ = ["PATIENCE", "Kept", "Options", "address", "admin", "codes", "common", "failure", "is_away", "quiet"]

#: Options of a client as pairs, so that they are part of a value.
Options = tuple[tuple[str, str], ...]
T = TypeVar("T")
#: How long one request may take, in seconds.
PATIENCE = 5.0
#: Where librdkafka writes that a broker is away: callers get an error that says so.
quiet = logging.getLogger("headrace.kafka")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


def codes(*names: str) -> frozenset[int]:
    """The codes of errors, by their names. The names of librdkafka's own errors begin with `_`."""
    return frozenset(getattr(KafkaError, name) for name in names)


_AWAY = codes(
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE",
    "_WAIT_COORD", "_DESTROY", "BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "OFFSET_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR", "UNSTABLE_OFFSET_COMMIT", "CONCURRENT_TRANSACTIONS", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
)  # fmt: skip
_AWAY_HINT = "a broker that runs and can be reached at the address of bootstrap="
_ALL_DOWN = codes("_ALL_BROKERS_DOWN")
_NOT_LOGGED_IN = codes("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")


class Kept(dict[Any, T]):
    """Clients of this process by their keys. A forked child forgets them without ending them."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        _all_kept.append(self)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """The client of a key, made when it is first needed."""
        with self.lock:
            if key not in self:
                self[key] = make()
            return self[key]

    def take(self, which: Callable[[Any], bool]) -> list[T]:
        """Remove the clients whose keys match, and return them."""
        with self.lock:
            return [self.pop(key) for key in [*self] if which(key)]


_all_kept: list[Kept[Any]] = []
_of_parents: list[dict[Any, Any]] = []  # never collected, so that nothing is ended


def _forget() -> None:
    for kept in _all_kept:
        _of_parents.append(dict(kept))
        kept.clear()
        kept.lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
_admins: Kept[AdminClient] = Kept()
_problems: dict[Options, KafkaError] = {}


def common(options: Options) -> dict[str, Any]:
    """The options with those that every client has."""
    return {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1000, **dict(options), "logger": quiet}


def admin(options: Options) -> AdminClient:
    """The client that asks for offsets, topics and groups."""
    client: dict[str, Any] = {**common(options), "error_cb": partial(_note, options)}
    try:
        return _admins.once(options, lambda: AdminClient(client))
    except KafkaException as error:
        raise PlanError(
            f"Kafka's client does not accept its options: {error.args[0].str()}",
            given=", ".join(name for name, _ in options),  # without the values: one may be a password
            instead="the names and values that librdkafka has",
        ) from error


def _note(options: Options, error: KafkaError) -> None:
    """Called by librdkafka, inside of `poll`: why a connection failed. Calls only say that nobody answered."""
    if error.code() not in _ALL_DOWN:
        _problems[options] = error


def _problem(options: Options) -> KafkaError | None:
    """Why the connections of the client that asks failed most recently, since the last call."""
    _problems.pop(options, None)
    admin(options).poll(0)
    return _problems.get(options)


def address(options: Options) -> str:
    """The address of the brokers, for messages."""
    return dict(options).get("bootstrap.servers", "")


def is_away(error: KafkaError) -> bool:
    """Whether an error may go away by itself: the broker is down, moves a partition, or is overloaded."""
    return error.code() in _AWAY or error.retriable()


def failure(
    error: BaseException | KafkaError,
    what: str,
    kind: type[SourceError | SinkError] = SourceError,
    options: Options | None = None,
) -> HeadraceError:
    """An error of librdkafka as one of ours: `Unavailable`, or an error that ends the query.

    With `options`, it is one of the client that asks (`admin`), and the reason of its connections is part of it.
    """
    reason = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(reason, KafkaError):
        text = f"{what}: Kafka answers {reason.name()}: {reason.str()}"
        problem = _problem(options) if options is not None and is_away(reason) else None
        if problem is not None:
            text = f"{text} ({problem.str()})"
            reason = problem if problem.code() in _NOT_LOGGED_IN else reason
        if is_away(reason) and not reason.fatal():
            return Unavailable(text, instead=_AWAY_HINT)
        return kind(text, instead=_hint(reason))
    if isinstance(reason, TimeoutError):
        return Unavailable(f"{what}: Kafka does not answer", instead=_AWAY_HINT)
    return kind(f"{what}: {reason}")


def _hint(error: KafkaError) -> str:
    hints: Mapping[int, str] = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "a user who may use the topic",
        KafkaError.GROUP_AUTHORIZATION_FAILED: "a user who may use the group",
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "a user who may write transactions",
        KafkaError.MSG_SIZE_TOO_LARGE: "message.max.bytes in the options, and max.message.bytes of the topic",
    }
    login = "sasl.username and sasl.password in the options"
    return login if error.code() in _NOT_LOGGED_IN else hints.get(error.code(), "")
