"""A folder of an object store: S3, Google Cloud Storage, or Azure's.

An object appears whole or not at all, and is durable by then. That it is created, and replaces no
other one, is a condition that the store checks (``If-None-Match`` of HTTP).
"""

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from beam_spark_runner.state.delta_files import DeltaFiles

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_READ_BYTES = 8 << 20
# The driver tries again for longer, see ``scheduling.patience``, and Spark the task.
_RETRIES = 3
_RETRY_S = 20.0
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")


class ObjectStoreError(OSError):
    """The store cannot be reached, or refuses something."""


@dataclass(frozen=True, slots=True)
class ObjectFolder(DeltaFiles):
    """See ``DeltaFiles``.

    Threads: any.

    Attributes:
        url: of the folder.
        settings: of obstore's client of S3, such as ("endpoint", "https://…"). What is missing
            comes from the environment, or from the machine's own credentials.
        scratch: local folder for copies while they are in use; None: that for temporary files.
    """

    url: str
    settings: tuple[tuple[str, str], ...] = ()
    scratch: str | None = None

    def open(self, name: str) -> BinaryIO:
        """See ``DeltaFiles.open``: of a local copy."""
        # Without a name, so that nothing is left of it. The caller closes it.
        copy = tempfile.TemporaryFile(dir=self.scratch)  # noqa: SIM115
        try:
            self._download(name, copy)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return cast(BinaryIO, copy)

    @contextlib.contextmanager
    def downloaded(self, name: str) -> Iterator[str]:
        """Return the path of a local copy, which is removed afterwards. Maps of it stay valid.

        Raises:
            FileNotFoundError: there is no object of this name.
            OSError: the store does not answer, or the local disk is full.
        """
        with tempfile.NamedTemporaryFile(prefix="beam-", dir=self.scratch) as target:
            self._download(name, target)
            target.flush()
            yield target.name

    def _download(self, name: str, target: IO[bytes]) -> None:
        import obstore

        with _asked(f"read {name}"):
            for piece in obstore.get(self._store, name).stream(min_chunk_size=_READ_BYTES):
                target.write(piece)

    def put(self, name: str, local: Path) -> None:
        """See ``DeltaFiles.put``."""
        import obstore

        with _asked(f"write {name}"):
            obstore.put(self._store, name, local)

    def put_content(self, name: str, content: BinaryIO) -> None:
        """Store an object, in place of any of its name."""
        import obstore

        with _asked(f"write {name}"):
            obstore.put(self._store, name, content)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object, unless there is one of that name: then return False.

        After an error, or if the answer was lost and it was tried again, it may be there.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _asked(f"create {name}"):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        import obstore

        with _asked(f"read {name}"):
            return bytes(obstore.get(self._store, name).bytes())

    def names(self) -> Sequence[str]:
        """Return the names of all objects in the folder, without those of folders below."""
        import obstore

        with _asked("list it"):
            found = obstore.list_with_delimiter(self._store)
            return [each["path"] for each in found["objects"]]

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects. It is not an error if one does not exist."""
        import obstore

        with _asked("delete objects"):
            if all_names := list(names):
                try:
                    obstore.delete(self._store, all_names)
                except FileNotFoundError:
                    for name in all_names:  # not all stores say it, and none says which
                        with contextlib.suppress(FileNotFoundError):
                            obstore.delete(self._store, name)

    @property
    def _store(self) -> "ObjectStore":
        return _client(self.url, self.settings)


@functools.lru_cache(16)
def _client(url: str, given: tuple[tuple[str, str], ...]) -> "ObjectStore":
    """Return the client for a folder, of which a process has one."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    settings: dict[str, Any] = dict(given) if url.startswith("s3") else {}
    options: dict[str, Any] = {}  # what is not among them comes from the environment
    endpoints = [settings.get("endpoint", ""), *map(os.environ.get, _ENDPOINTS)]
    if any(each and each.startswith("http://") for each in endpoints):
        options["allow_http"] = True
    if settings.pop("verify", "true") == "false":
        options["allow_invalid_certificates"] = True
    retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    client: dict[str, Any] = {"retry_config": retries}
    if settings:
        client["config"] = settings
    if options:
        client["client_options"] = options
    try:
        store: ObjectStore = from_url(url, **client)
    except BaseError as error:
        raise ObjectStoreError(f"could not open {url}: {_first_part(error)}") from error
    return store


@contextlib.contextmanager
def _asked(what: str) -> Iterator[None]:
    from obstore.exceptions import BaseError, NotFoundError

    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise FileNotFoundError(f"could not {what}: {_first_part(error)}") from error
    except (OSError, BaseError) as error:
        raise ObjectStoreError(f"could not {what}: {_first_part(error)}") from error


def _first_part(error: Exception) -> str:
    """Return what is wrong, without the Rust values that obstore adds."""
    return str(error).partition("\n\nDebug source")[0]
