"""A folder of an object store: S3, Google Cloud Storage, or Azure's.

An object appears whole or not at all, and is then durable. ``create`` never replaces an object:
the store checks this as a condition of the request (``If-None-Match`` of HTTP).
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, ClassVar

from typing_extensions import override

from beam_spark_runner.storage.folder import Settings, UrlFolder

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_READ_BYTES = 8 << 20
# The driver tries again for longer, see ``scheduling.patience``, and Spark the task.
_RETRIES = 3
_RETRY_S = 20.0
_REQUEST_LASTS, _SILENT_FOR = "1day", "30s"  # timeouts of a request, and between two reads
_PREFIXES = {"gs": "GOOGLE_", "abfs": "AZURE_", "abfss": "AZURE_", "az": "AZURE_"}
_CLIENT_OPTIONS = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "read_timeout"),
    *("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "user_agent"),
    *("proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate"),
)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")


class ObjectStoreError(OSError):
    """The store cannot be reached, or refuses a request."""


@dataclass(frozen=True, slots=True)
class ObjectFolder(UrlFolder):
    """See ``UrlFolder``.

    Settings that are not given are taken from the environment, or from the credentials of the
    machine.
    """

    two_may_create: ClassVar[str] = (
        "ignores the condition of a request that an object must not exist yet (If-None-Match)"
    )

    @override
    def _download(self, name: str, target: IO[bytes]) -> None:
        import obstore

        with _doing(f"read {name}"):
            for piece in obstore.get(self._store, name).stream(min_chunk_size=_READ_BYTES):
                target.write(piece)

    @override
    def make(self) -> None:
        """See ``Folder.make``: object stores need no folders, so this does nothing."""

    @override
    def exists(self) -> bool:
        return True

    @override
    def put(self, name: str, local: Path) -> None:
        import obstore

        with _doing(f"write {name}"):
            obstore.put(self._store, name, local)

    @override
    def put_content(self, name: str, content: BinaryIO) -> None:
        import obstore

        with _doing(f"write {name}"):
            obstore.put(self._store, name, content)

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _doing(f"create {name}"):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    @override
    def read(self, name: str) -> bytes:
        import obstore

        with _doing(f"read {name}"):
            return bytes(obstore.get(self._store, name).bytes())

    @override
    def names(self) -> Sequence[str]:
        import obstore

        with _doing("list it"):
            listing = obstore.list_with_delimiter(self._store)
            return [entry["path"] for entry in listing["objects"]]

    @override
    def folders(self) -> Sequence[str]:
        import obstore

        with _doing("list it"):
            prefixes = obstore.list_with_delimiter(self._store)["common_prefixes"]
            return [prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes]

    @override
    def delete(self, names: Iterable[str]) -> None:
        import obstore

        with _doing("delete objects"):
            if all_names := list(names):
                try:
                    obstore.delete(self._store, all_names)
                except FileNotFoundError:
                    for name in all_names:  # no store reports which object was missing
                        with contextlib.suppress(FileNotFoundError):
                            obstore.delete(self._store, name)

    @override
    def remove(self) -> None:
        import obstore

        with _doing("delete it"):
            for page in obstore.list(self._store):
                self.delete(entry["path"] for entry in page)

    @property
    def _store(self) -> "ObjectStore":
        return _client(self.url, self.settings)


@functools.lru_cache(16)
def _client(url: str, all_settings: Settings) -> "ObjectStore":
    """Return the client for a folder; all uses in a process share it."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    ours = {name: value for name, value in all_settings if not name.startswith("hdfs_")}
    settings: dict[str, Any] = ours if url.startswith("s3") else {}
    # The timeout of a request includes its whole body, and the default is too short to read large
    # deltas over a slow connection.
    options: dict[str, Any] = {"timeout": _REQUEST_LASTS, "read_timeout": _SILENT_FOR}
    options |= _client_options_of_environment(url)
    endpoints = [settings.get("endpoint", ""), *map(os.environ.get, _ENDPOINTS)]
    if any(endpoint and endpoint.startswith("http://") for endpoint in endpoints):
        options["allow_http"] = True
    if settings.pop("verify", "true") == "false":
        options["allow_invalid_certificates"] = True
    retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    client: dict[str, Any] = {"retry_config": retries, "client_options": options}
    if settings:
        client["config"] = settings
    try:
        store: ObjectStore = from_url(url, **client)
    except BaseError as error:
        raise ObjectStoreError(f"could not open {url}: {_first_part(error)}") from error
    return store


def _client_options_of_environment(url: str) -> dict[str, str]:
    """Return the client options that obstore reads by itself only if it is given none."""
    prefix = _PREFIXES.get(url.partition("://")[0], "AWS_")
    values = {name: os.environ.get(f"{prefix}{name.upper()}") for name in _CLIENT_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


@contextlib.contextmanager
def _doing(what: str) -> Iterator[None]:
    from obstore.exceptions import BaseError, NotFoundError

    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise FileNotFoundError(f"could not {what}: {_first_part(error)}") from error
    except (OSError, BaseError) as error:
        raise ObjectStoreError(f"could not {what}: {_first_part(error)}") from error


def _first_part(error: Exception) -> str:
    """Return the text of an error without the Rust values that obstore appends."""
    return str(error).partition("\n\nDebug source")[0]
