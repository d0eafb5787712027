"""Object stores: `s3://bucket/prefix`, `gs://bucket/prefix`, `abfs://container@account.dfs.core.windows.net/prefix`.

`obstore` supports all of them (`pip install 'headrace[objects]'`). `pyarrow.fs` cannot create a file only if it is
absent, on which the store's safety rests. A store that cannot do this either is refused (`check`).

Endpoints and keys come from the environment, with the names of the vendors' own tools: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP` for an endpoint without encryption, and so
on (`_KEYS`). Without keys, the machine's role is used. `environment.py` passes them to workers.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import StoreError, without_secrets
from headrace.failpoints import reach
from headrace.pieces import Data, Pieces
from headrace.store.kept_files import KeptFiles
from headrace.store.log import DATA
from headrace.store.remote import RemoteStorage, Unanswered

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
    from obstore.store import from_url
except ImportError:  # an optional package; the error of the first call names it
    obstore = None  # type: ignore[assignment,unused-ignore]

__all__ = ["SCHEMES", "ObjectStorage"]

SCHEMES = ("s3", "gs", "abfs", "abfss")
#: The environment variables with the credentials.
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL for a server of your own",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_VENDORS = {"s3": "AWS", "gs": "GOOGLE", "abfs": "AZURE"}
#: How often and how long calls are repeated if a store cannot be reached or fails.
_RETRIED = {"max_retries": 6, "retry_timeout": timedelta(minutes=2)}
_TIMEOUT = timedelta(minutes=5)
#: A call that only reads is repeated if the store sends nothing for so long. Writing may take longer.
_SILENCE = timedelta(seconds=30)
#: Larger files are read in parts of so many bytes, in parallel.
_PART = 16 << 20
_READERS = 4
#: Characters with a special meaning in URLs or in patterns of files.
_ODD = re.compile(r"[\s?#\[\]*%{}^|\\\"<>`~\x00-\x1f]")
#: Answers after which a call may have happened, besides answers without a status: the server failed or is busy.
_OPEN = re.compile(r"status code: (408|409|425|429|5\d\d)")
_STATUS = re.compile(r"status code: \d{3}")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:<Message>([^<]*)</Message>)?")


class ObjectStorage(RemoteStorage):
    """A bucket, or a prefix in it. It connects where it is used: tasks get it by pickle."""

    def __init__(self, url: str, *, keep: bool = False) -> None:
        self._scheme = url.partition("://")[0].lower().replace("abfss", "abfs")
        if self._scheme not in SCHEMES:
            raise StoreError(
                f"a store cannot be on {self._scheme}://",
                given=url,
                allowed=f"a path that all workers can reach, or {', '.join(f'{scheme}://' for scheme in _KEYS)}",
                instead="a bucket of an object store, or a directory on a file system that all workers mount",
            )
        self._url = _checked(url)
        #: The clients for reading and for writing.
        self._clients: dict[bool, Any] = {}
        #: Immutable files that workers read repeatedly, kept on their machine if `keep`.
        self._kept = KeptFiles(self.place) if keep else None

    @property
    def place(self) -> str:
        return without_secrets(self._url)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.place!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}

    # --- the calls of a store -----------------------------------------------------------------------------------------

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        created = super().create(key, data, lasting=lasting)
        if created and self._kept is not None and _is_kept(key):
            self._kept.add(key, data)
        return created

    def mapped(self, key: str) -> pa.Buffer | None:
        return self._kept.get(key) if self._kept is not None else None

    def put(self, key: str, data: Data) -> bool:
        pieces = [memoryview(p).cast("B") for p in (data if isinstance(data, Pieces) else [data]) if memoryview(p)]
        with self._errors(f"cannot write {key!r}", open_ended=True):
            reach("create", key)
            try:
                obstore.put(self._connected(writing=True), key, pieces or b"", mode="create")
            except AlreadyExistsError:
                return False
            reach("created", key)
        return True

    def read(self, key: str) -> pa.Buffer:
        data = self._fetched(key)
        if self._kept is None or not _is_kept(key):
            return data
        self._kept.add(key, data)
        return self._kept.get(key) or data

    def _fetched(self, key: str) -> pa.Buffer:
        with self._errors(f"cannot read {key!r}"):
            reach("read", key)
            store = self._connected()
            response = obstore.get(store, key)
            size = response.meta["size"]
            buffer = pa.allocate_buffer(size)  # aligned, as Arrow's data in it must be
            view = memoryview(buffer).cast("B")
            if size <= _PART:
                view[:] = memoryview(response.bytes())
                return buffer

            def fetch(start: int) -> None:
                end = min(start + _PART, size)
                view[start:end] = memoryview(obstore.get_range(store, key, start=start, end=end))

            with ThreadPoolExecutor(_READERS) as readers:
                list(readers.map(fetch, range(0, size, _PART)))
            return buffer

    def length(self, key: str) -> int:
        return self.about(key)[0]

    def keys(self, folder: str, after: str = "") -> list[str]:
        with self._errors(f"cannot list {folder!r}"):
            reach("keys", folder)
            pages = obstore.list(self._connected(), folder, offset=after or None)
            keys = [str(about["path"]) for page in pages for about in page]
        return sorted(key for key in keys if key > after and key.rpartition("/")[0] == folder)

    def sizes(self, folder: str = "") -> dict[str, int]:
        return {key: size for key, size, _ in self.listed(folder)}

    def listed(self, folder: str = "", after: str = "") -> list[tuple[str, int, int]]:
        """The keys of all files below a folder, in order, with their lengths and modification times (ns).

        `after` is a key: the store lists only those that follow it, and is not asked for the others.
        """
        with self._errors(f"cannot list {folder or self.place!r}"):
            pages = obstore.list(self._connected(), folder or None, offset=after or None)
            return sorted(
                (str(about["path"]), int(about["size"]), _modified(about)) for page in pages for about in page
            )

    def about(self, key: str) -> tuple[int, int]:
        """The length and modification time (ns) of a file; `FileNotFoundError` if it does not exist."""
        with self._errors(f"cannot read {key!r}"):
            head = obstore.head(self._connected(), key)
            return int(head["size"]), _modified(head)

    def open(self, key: str) -> Any:
        """A file with random access, read piece by piece."""
        with self._errors(f"cannot read {key!r}"):
            return obstore.open_reader(self._connected(), key, buffer_size=_PART // 4)

    def remove(self, key: str) -> None:
        if self._kept is not None:
            self._kept.remove(key)
        with self._errors(f"cannot remove {key!r}"):
            reach("remove", key)
            with suppress(FileNotFoundError):
                obstore.delete(self._connected(), key)
            reach("removed", key)

    def copy(self, key: str, to: str) -> None:
        """Copy a file inside the store; an existing file is replaced."""
        with self._errors(f"cannot copy {key!r}"):
            obstore.copy(self._connected(writing=True), key, to)

    def uri(self, key: str) -> str:
        """The URL of a file."""
        return f"{self._url}/{key}"

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """`StoreError` unless it can be reached and written, and can create a file only if it is absent."""
        key = f"probes/{uuid.uuid4().hex}"
        try:
            first, second = self.put(key, b"1"), self.put(key, b"2")
        except Unanswered as error:
            raise StoreError(
                f"the store {self.place!r} cannot be reached: {error}",
                given=self.place,
                instead=f"check the bucket, the network, and the environment: {_KEYS[self._scheme]}",
            ) from error
        self.remove(key)
        if not first or second:
            raise self._unsafe()

    def _unsafe(self) -> StoreError:
        return StoreError(
            f"{self.place!r} cannot create a file only if it is absent, which keeps two drivers apart",
            given=self.place,
            allowed="object stores with conditional writes (If-None-Match), such as Amazon S3",
            instead="another store, or a directory that all workers can reach",
        )

    def _connected(self, *, writing: bool = False) -> Any:
        if writing not in self._clients:
            plain = os.environ.get(f"{_VENDORS[self._scheme]}_ALLOW_HTTP", "").lower() in ("true", "1")
            silence = {} if writing else {"read_timeout": _SILENCE}
            client = {"timeout": _TIMEOUT, "allow_http": plain, **silence}
            options: Any = {"client_options": client, "retry_config": _RETRIED}
            self._clients[writing] = from_url(self._url, **options)
        return self._clients[writing]

    @contextmanager
    def _errors(self, what: str, *, open_ended: bool = False) -> Iterator[None]:
        """Turn errors of the store's client into errors of Headrace; failed `open_ended` calls may have happened."""
        if obstore is None:
            raise StoreError(
                "object stores need the package obstore", given=self.place, instead="pip install 'headrace[objects]'"
            )
        try:
            yield
        except NotSupportedError as error:
            raise self._unsafe() from error
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            text = str(error)
            why = self._reason(text)
            if open_ended and (_OPEN.search(text) or not _STATUS.search(text)):
                raise Unanswered(why) from None
            raise StoreError(
                f"{what} in {self.place!r}: {why}",
                given=self.place,
                instead=f"check the bucket and the environment: {_KEYS[self._scheme]}",
            ) from None

    def _reason(self, text: str) -> str:
        """The store's message, without the request: one line, no secrets."""
        if "169.254.169.254" in text or "metadata.google.internal" in text or "/metadata/identity" in text:
            return f"there are no credentials: set {_KEYS[self._scheme]}"
        if "builder error" in text:
            return f"the endpoint is not encrypted: set {_VENDORS[self._scheme]}_ALLOW_HTTP=true to allow that"
        answer = _ANSWER.search(text)
        if answer is not None:
            return ": ".join(part for part in answer.groups() if part)
        first = text.partition("\n")[0]
        return without_secrets(first.rpartition(" - ")[2] or first)


def _checked(url: str) -> str:
    """The URL, without `/` at its end; `StoreError` if clients could interpret it differently."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    parts = prefix.split("/") if prefix else []
    if not bucket or scheme != scheme.lower() or _ODD.search(rest) or any(part in ("", ".", "..") for part in parts):
        raise StoreError(
            "this URL of an object store is ambiguous",
            given=without_secrets(url),
            allowed="a scheme in small letters, a bucket, and a prefix without spaces, empty parts, '.', '..' and any "
            'of ? # [ ] * % { } ^ | \\ " < > ` ~',
            instead="s3://bucket/prefix",
        )
    return url.rstrip("/")


def _is_kept(key: str) -> bool:
    """Whether a file may be read repeatedly; records of trips are read once."""
    return key.startswith(f"{DATA}/") and "-trip-" not in key


def _modified(about: Any) -> int:
    return int(about["last_modified"].timestamp() * 1000) * 1_000_000
