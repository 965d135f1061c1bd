"""A realm of Kerberos on this machine: a KDC, whose principals tests choose."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration.ports import free_ports

REALM = "TEST.LOCAL"
_START_TIMEOUT_S = 30.0
_POLL_S = 0.05
# Debian has these programs outside of the path of users who are not root.
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
# No other machine and no name server is asked.
_CLIENTS = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_KDC = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
"""


class Realm:
    """A KDC.

    Args:
        folder: for its files; empty.

    Attributes:
        settings: the path of the file that ``KRB5_CONFIG`` names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.settings = folder, folder / "krb5.conf"
        (self._port,) = free_ports(1)
        self.settings.write_text(_CLIENTS.format(realm=REALM, port=self._port))
        (folder / "kdc.conf").write_text(
            _KDC.format(realm=REALM, port=self._port, folder=self._folder)
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the database, and start the KDC.

        Raises:
            RuntimeError: it does not start, or its programs are missing.
        """
        self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", "secret")
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n", "-P", str(self._folder / "pid")],
            env=self._environment,
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return
            time.sleep(_POLL_S)
        raise RuntimeError("the KDC does not start")

    def keytab(self, *principals: str) -> Path:
        """Make principals, and return a file with their keys."""
        path = self._folder / f"{principals[0].replace('/', '-')}.keytab"
        for each in principals:
            self._run("kadmin.local", "-q", f"addprinc -randkey {each}")
            self._run("kadmin.local", "-q", f"ktadd -k {path} {each}")
        return path

    def close(self) -> None:
        """End the KDC."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _environment(self) -> Mapping[str, str]:
        files = {"KRB5_CONFIG": self.settings, "KRB5_KDC_PROFILE": self._folder / "kdc.conf"}
        return {**os.environ, **{name: str(path) for name, path in files.items()}}

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [_program(program), *arguments],
            env=self._environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise RuntimeError(f"{name} is missing: make integration-kerberos")
    return found


@contextlib.contextmanager
def started_realm(folder: Path) -> Iterator[Realm]:
    """Start a realm; it ends with the context."""
    realm = Realm(folder)
    try:
        realm.start()
        yield realm
    finally:
        realm.close()
