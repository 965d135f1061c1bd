"""A proxy that holds what passes it while a file is there, as a broken network would."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_LOOKS_EVERY_S = 0.01
_CHUNK_BYTES = 1 << 16


class _Proxy:
    """See ``holding_proxy``."""

    def __init__(self, port: int, held: Path) -> None:
        self._port, self._held = port, held
        self.has_ended = False
        self.listener = socket.create_server(("127.0.0.1", 0))

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # the proxy has ended
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        for pair in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Pass bytes on. What was held arrives, even if who has sent it has given up."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _wait(self) -> None:
        while self._held.exists() and not self.has_ended:
            time.sleep(_LOOKS_EVERY_S)


@contextlib.contextmanager
def holding_proxy(port: int, held: Path) -> Iterator[int]:
    """Run a proxy of a port of this machine, in threads of this process.

    Args:
        port: The port.
        held: A path. While there is a file, nothing passes, and nothing is refused either.

    Yields:
        The port of the proxy.
    """
    proxy = _Proxy(port, held)
    accepting = threading.Thread(target=proxy.accept, daemon=True)
    accepting.start()
    try:
        yield proxy.listener.getsockname()[1]
    finally:
        proxy.has_ended = True
        proxy.listener.shutdown(socket.SHUT_RDWR)
        proxy.listener.close()
        accepting.join()
