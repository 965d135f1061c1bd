"""A real HDFS whose servers speak only HTTPS."""

import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from integration.hdfs_server import Hdfs, started_hdfs

_PASSWORD = "secret"  # of the key; Java wants one


class HdfsOverHttps(Hdfs):
    """A namenode and a datanode with certificates of a CA that is made here.

    Attributes:
        ca: the path of the CA's certificate.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.tls = ssl.create_default_context(cafile=str(self.ca))
        keys = folder / "keys.p12"
        keys.write_bytes(_packed(authority.issue_cert("127.0.0.1", "localhost")))
        stores = ("location", keys), ("password", _PASSWORD), ("type", "pkcs12")
        settings = {f"ssl.server.keystore.{name}": value for name, value in stores}
        self._write("ssl-server.xml", {**settings, "ssl.server.keystore.keypassword": _PASSWORD})

    @property
    def environment(self) -> Mapping[str, str]:
        return {"REQUESTS_CA_BUNDLE": str(self.ca)}

    @property
    def checkpoint_flags(self) -> Sequence[str]:
        flags = [name for name, value in self.settings if value == "true"]
        named = [f"--{name}={value}" for name, value in self.settings if name not in flags]
        return [*named, *(f"--{name}" for name in flags)]

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return (*super().settings, ("hdfs_https", "true"))

    def _of_namenodes(self) -> Mapping[str, object]:
        return {
            **super()._of_namenodes(),
            "dfs.http.policy": "HTTPS_ONLY",
            "dfs.namenode.https-address": f"127.0.0.1:{self.web_port}",
            "dfs.datanode.https.address": "127.0.0.1:0",
        }


def _packed(certificate: trustme.LeafCert) -> bytes:
    """Return a key and its certificates as Java reads them."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    own, *others = (load_pem_x509_certificate(each.bytes()) for each in certificate.cert_chain_pems)
    return pkcs12.serialize_key_and_certificates(
        b"hdfs",
        key,  # type: ignore[arg-type]  # of which kind, trustme alone knows
        own,
        others,
        BestAvailableEncryption(_PASSWORD.encode()),
    )


@contextlib.contextmanager
def start_hdfs_over_https(folder: Path) -> Iterator[HdfsOverHttps]:
    """Make and start one; it ends with the context."""
    hdfs = HdfsOverHttps(folder)
    with started_hdfs(hdfs):
        yield hdfs
