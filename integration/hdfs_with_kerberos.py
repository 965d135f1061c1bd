"""A real HDFS in secure mode: Kerberos, and HTTPS only."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gssapi
import requests
from requests_gssapi import REQUIRED, HTTPSPNEGOAuth

from integration.checkpoint_store import environment_of
from integration.hdfs_over_https import HdfsOverHttps
from integration.hdfs_server import USER, started_hdfs
from integration.kerberos_realm import REALM, Realm, started_realm

HOST = "localhost"  # principals have this name


class HdfsWithKerberos(HdfsOverHttps):
    """A namenode and a datanode in secure mode.

    Args:
        folder: for their data, settings and logs; empty.
        realm: which runs, and has none of their principals.

    Attributes:
        realm: the same.
        keytab: the path of the keys of the user whose folders tests use.
    """

    def __init__(self, folder: Path, realm: Realm) -> None:
        self.realm = realm
        self._of_servers = realm.keytab(*(f"{name}/{HOST}" for name in ("nn", "dn", "HTTP")))
        self.keytab = realm.keytab(USER)
        super().__init__(folder)
        self._write(
            "core-site.xml",
            {
                "fs.defaultFS": f"hdfs://{HOST}:{self.rpc_port}",
                "hadoop.security.authentication": "kerberos",
                "hadoop.security.authorization": "true",
                # Of WebHDFS, too.
                "hadoop.http.authentication.type": "kerberos",
                "hadoop.http.authentication.kerberos.principal": f"HTTP/{HOST}@{REALM}",
                "hadoop.http.authentication.kerberos.keytab": self._of_servers,
            },
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **super().environment,
            "KRB5_CONFIG": str(self.realm.settings),
            "KRB5_CLIENT_KTNAME": str(self.keytab),
            "KRB5CCNAME": f"FILE:{self._folder}/tickets",
        }

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return (
            ("hdfs_port", str(self.web_port)),
            ("hdfs_https", "true"),
            ("hdfs_kerberos", "true"),
        )

    def folder(self, name: str) -> str:
        return f"hdfs://{HOST}:{self.rpc_port}/{USER}/{name}"

    @property
    def _java_options(self) -> Sequence[str]:
        return [f"-Djava.security.krb5.conf={self.realm.settings}"]

    def _of_namenodes(self) -> Mapping[str, object]:
        principals = {
            "dfs.namenode.kerberos.principal": "nn",
            "dfs.datanode.kerberos.principal": "dn",
            "dfs.web.authentication.kerberos.principal": "HTTP",
        }
        keys = ("dfs.namenode.keytab.file", "dfs.datanode.keytab.file")
        return {
            **super()._of_namenodes(),
            **{key: f"{name}/{HOST}@{REALM}" for key, name in principals.items()},
            **dict.fromkeys((*keys, "dfs.web.authentication.kerberos.keytab"), self._of_servers),
            "dfs.block.access.token.enable": "true",
            # Instead of ports that only root may open.
            "dfs.data.transfer.protection": "authentication",
            "dfs.datanode.hostname": HOST,
        }

    def cancel(self, token: str) -> None:
        """Cancel a delegation token of this process's user."""
        url = f"https://{HOST}:{self.web_port}/webhdfs/v1/?op=CANCELDELEGATIONTOKEN&token={token}"
        auth = HTTPSPNEGOAuth(REQUIRED, opportunistic_auth=True)
        requests.put(url, auth=auth, verify=str(self.ca), timeout=60).raise_for_status()

    def _make_folder(self) -> None:
        self._asked("PUT", HOST, f"/webhdfs/v1/{USER}?op=MKDIRS&permission=777")

    def _asked(self, method: str, host: str, path: str) -> bytes:
        """As the namenode's own user, who is the superuser."""
        name = gssapi.Name(f"nn/{HOST}@{REALM}", gssapi.NameType.kerberos_principal)
        store = {"client_keytab": str(self._of_servers), "ccache": "MEMORY:superuser"}
        creds = gssapi.Credentials(name=name, usage="initiate", store=store)
        answer = requests.request(
            method,
            f"https://{HOST}:{self.web_port}{path}",
            auth=HTTPSPNEGOAuth(REQUIRED, opportunistic_auth=True, creds=creds),
            verify=str(self.ca),
            timeout=60,
        )
        answer.raise_for_status()
        return answer.content


@contextlib.contextmanager
def start_hdfs_with_kerberos(folder: Path) -> Iterator[HdfsWithKerberos]:
    """Make and start a realm and an HDFS, and give this process what their clients need.

    All of that ends with the context.
    """
    for name in "realm", "hdfs":
        (folder / name).mkdir()
    with started_realm(folder / "realm") as realm:
        hdfs = HdfsWithKerberos(folder / "hdfs", realm)
        with environment_of(hdfs), started_hdfs(hdfs):
            yield hdfs
