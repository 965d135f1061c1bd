"""etcd, the API server, the scheduler and the controllers of a Kubernetes, as processes."""

import json
import secrets
from pathlib import Path

import trustme
import yaml  # type: ignore[import-untyped]

from integration.kubernetes.machine import Processes
from integration.ports import free_ports

_SERVICES = "10.96.0.0/16"
_ADDRESS_OF_SERVICE = "10.96.0.1"
NODE = "node-of-tests"
_USERS = {
    "admin": ("admin", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "proxy": ("system:kube-proxy", ""),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}


_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""What pods ask for is recorded."""


class ControlPlane:
    """What decides which pods run; ``pod_node`` runs them.

    Args:
        folder: for data, certificates and settings.
        programs: the folder of Kubernetes' programs.
        address: of this machine, which pods reach.

    Attributes:
        ca: a PEM file; kubelets trust certificates that it has signed.
    """

    def __init__(self, folder: Path, programs: Path, address: str) -> None:
        self._folder, self._programs, self._address = folder, programs, address
        self._etcd, self._peers, self._port, self._controllers, self._scheduler = free_ports(5)
        self.ca = folder / "ca.pem"
        self._tokens = {name: secrets.token_hex(16) for name in _USERS}
        self._audit = folder / "audit.log"
        self._write_certificates()

    def kubeconfig(self, user: str) -> Path:
        """Write the file with which a user of ``_USERS`` connects; return its path."""
        path = self._folder / f"as-{user}.yaml"
        server = f"https://{self._address}:{self._port}"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": server, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "u", "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        path.chmod(0o600)
        return path

    def start(self, processes: Processes) -> None:
        """Start all processes. Those that need the API server wait for it."""
        etcd = f"http://127.0.0.1:{self._etcd}"
        peers = f"http://127.0.0.1:{self._peers}"
        processes.start(
            "etcd",
            [
                *(
                    str(self._programs / "etcd"),
                    f"--data-dir={self._folder}/etcd",
                    f"--listen-client-urls={etcd}",
                ),
                *(f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}"),
                *(f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"),
                "--unsafe-no-fsync",
            ],
        )
        tokens = self._folder / "tokens.csv"
        lines = [
            f'{self._tokens[name]},{user},{user},"{group}"\n'
            for name, (user, group) in _USERS.items()
        ]
        tokens.touch(mode=0o600)
        tokens.write_text("".join(lines))
        policy = self._folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT))
        accounts = self._folder / "accounts-key.pem"
        processes.start(
            "kube-apiserver",
            [
                *(str(self._programs / "kube-apiserver"), f"--etcd-servers={etcd}"),
                *(f"--bind-address={self._address}", f"--secure-port={self._port}"),
                *(f"--advertise-address={self._address}", f"--token-auth-file={tokens}"),
                *(f"--service-cluster-ip-range={_SERVICES}", "--authorization-mode=Node,RBAC"),
                *(f"--tls-cert-file={self._folder}/server.pem", f"--client-ca-file={self.ca}"),
                f"--tls-private-key-file={self._folder}/server-key.pem",
                f"--kubelet-client-certificate={self._folder}/client.pem",
                f"--kubelet-client-key={self._folder}/client-key.pem",
                *(f"--service-account-key-file={accounts}", "--anonymous-auth=false"),
                f"--service-account-signing-key-file={accounts}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--kubelet-preferred-address-types=InternalIP",
                *(f"--audit-policy-file={policy}", f"--audit-log-path={self._audit}"),
            ],
        )
        processes.start(
            "kube-controller-manager",
            [
                str(self._programs / "kube-controller-manager"),
                f"--kubeconfig={self.kubeconfig('controllers')}",
                f"--secure-port={self._controllers}",
                *("--bind-address=127.0.0.1", "--leader-elect=false"),
                *(f"--root-ca-file={self.ca}", f"--cert-dir={self._folder}/controllers"),
                f"--service-account-private-key-file={accounts}",
                "--use-service-account-credentials=true",
            ],
        )
        processes.start(
            "kube-scheduler",
            [
                str(self._programs / "kube-scheduler"),
                f"--kubeconfig={self.kubeconfig('scheduler')}",
                f"--secure-port={self._scheduler}",
                *("--bind-address=127.0.0.1", "--leader-elect=false"),
                f"--cert-dir={self._folder}/scheduler",
            ],
        )

    def rights_used(self, account: str, namespace: str) -> set[tuple[str, str]]:
        """Return each verb with its resource that a ServiceAccount has asked for so far."""
        user = f"system:serviceaccount:{namespace}:{account}"
        lines = self._audit.read_text().splitlines()
        found = [each for each in map(json.loads, lines) if each["user"]["username"] == user]
        # Paths such as /version have no resource; whoever has a token may read them.
        asked = [(each["verb"], each["objectRef"]) for each in found if "objectRef" in each]
        return {(verb, what["resource"]) for verb, what in asked}

    def _write_certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        names = (self._address, "127.0.0.1", _ADDRESS_OF_SERVICE, "kubernetes.default.svc")
        server = authority.issue_cert(*names)
        client = authority.issue_cert("client.tests", common_name="kube-apiserver")
        for name, cert in (("server", server), ("client", client)):
            with (self._folder / f"{name}.pem").open("wb") as file:
                file.writelines(blob.bytes() for blob in cert.cert_chain_pems)
            cert.private_key_pem.write_to_path(self._folder / f"{name}-key.pem")
        key = authority.issue_cert("accounts.tests").private_key_pem
        key.write_to_path(self._folder / "accounts-key.pem")
