"""A PostgreSQL server of Debian's packages, in a folder of its own."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DRIVER = "org.postgresql:postgresql:42.7.4"
"""The package with the JDBC driver, on Maven."""
_SUPERUSER = "beam"


@dataclass(frozen=True)
class PostgreSQL:
    """A server, which is stopped at first.

    Attributes:
        tools: the folder of its programs.
        folder: for its data.
        user: the user of this machine as whom it runs.
        port: at which it listens.
        method: how users are authenticated, as in ``pg_hba.conf``.
    """

    tools: Path
    folder: Path
    user: str
    port: int
    method: str

    @property
    def url(self) -> str:
        """The JDBC URL of its database."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._run(
            *("pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log"),
            *("-w", "-o", settings, "start"),
        )

    def stop(self) -> None:
        """Stop it as a crash does: it recovers when it is started again."""
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "stop")

    def query(self, statement: str) -> list[str]:
        """Execute a statement as the superuser; return the rows, columns separated by ``|``."""
        command = [str(self.tools / "psql"), "-h", str(self.folder), "-p", str(self.port)]
        command += ["-U", _SUPERUSER, "-XAt", "-v", "ON_ERROR_STOP=1", "-c", statement, "postgres"]
        return subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()

    def create(self) -> None:
        """Make its data."""
        shutil.chown(self.folder, self.user)
        self._run(
            *("initdb", "-D", f"{self.folder}/data", "-U", _SUPERUSER),
            *("--auth-local=trust", f"--auth-host={self.method}"),
        )

    def _run(self, tool: str, *arguments: str) -> None:
        command = [str(self.tools / tool), *arguments]
        if os.getuid() == 0:  # it does not run as root
            command = ["runuser", "-u", self.user, "--", *command]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def postgresql(method: str = "trust") -> Iterator[PostgreSQL]:
    """Run a separate server, with a superuser ``beam``. Skips the test if there is none here.

    Args:
        method: how users of its port are authenticated, as in ``pg_hba.conf``.
    """
    found = [shutil.which("pg_ctl"), *Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")]
    tools = next((Path(each).resolve().parent for each in found if each), None)
    if tools is None or not (tools / "initdb").exists():
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    # Directly in /tmp: another user enters it, and the path of its socket is short.
    folder = Path(tempfile.mkdtemp(prefix="beam-postgresql-", dir="/tmp"))
    try:
        server = PostgreSQL(tools, folder, user, port, method)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
