"""A real server of Azure Blob Storage on this machine: Azurite, Microsoft's own for tests."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.ports import free_ports

AZURITE = Path(sys.prefix) / "azurite"
_SERVER = AZURITE / "node_modules" / ".bin" / "azurite-blob"
_ACCOUNT = "devstoreaccount1"
# Azurite's documentation publishes this key; it is the same everywhere.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_CONTAINER = "beam-tests"
_START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AzureStore:
    """A running server.

    Attributes:
        endpoint: its URL.
    """

    endpoint: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What obstore needs in the environment of a process."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    @property
    def checkpoint_flags(self) -> Sequence[str]:
        """Options of a pipeline that has its checkpoint there: none."""
        return ()

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The same for ``UrlFolder``."""
        return ()

    def folder(self, name: str) -> str:
        """Return the URL of a folder, as users write it."""
        return f"abfss://{_CONTAINER}@{_ACCOUNT}.dfs.core.windows.net/{name}"


@contextlib.contextmanager
def start_azure_store(folder: Path) -> Iterator[AzureStore]:
    """Start a server with an empty container; it ends with the context.

    Args:
        folder: for its log.

    Raises:
        RuntimeError: Azurite is not installed, or does not start.
    """
    if not (AZURITE / ".ready").exists():
        raise RuntimeError(f"the Azure server for tests is missing: make {AZURITE}/.ready")
    (port,) = free_ports(1)
    log = folder / "azurite.log"
    command = [
        *(str(_SERVER), "--silent", "--disableTelemetry", "--inMemoryPersistence"),
        "--skipApiVersionCheck",  # new clients use versions that it does not know yet
        *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
    ]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        store = AzureStore(f"http://127.0.0.1:{port}")
        _create_container(store, server, log)
        yield store
    finally:
        server.kill()
        server.wait()


def _create_container(store: AzureStore, server: "subprocess.Popen[bytes]", log: Path) -> None:
    from azure.core.exceptions import ServiceRequestError
    from azure.storage.blob import BlobServiceClient

    account = f"{store.endpoint}/{_ACCOUNT}"
    deadline = time.monotonic() + _START_TIMEOUT_S
    with BlobServiceClient(account, _KEY, retry_total=0) as client:
        while time.monotonic() < deadline and server.poll() is None:
            with contextlib.suppress(ServiceRequestError):
                client.create_container(_CONTAINER)
                return
            time.sleep(0.1)
    raise RuntimeError(f"the Azure server does not answer: {log.read_text()[-2000:]}")
