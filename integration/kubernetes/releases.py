"""The chart, installed by Helm."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from integration.kubernetes.go_programs import ROOT, VERSION, helm
from integration.kubernetes.kubectl import Kubectl
from integration.kubernetes.machine import run
from integration.kubernetes.pod_images import SPARK
from integration.waiting import wait_until

CHART = ROOT / "deploy" / "helm" / "beam-spark-runner"
_DRIVER = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
_SMALL = {
    "image": {"repository": SPARK, "pullPolicy": "Never"},
    "jobServer": {"resources": _DRIVER},
    "pipeline": {"resources": _DRIVER},
    "executors": {"cpuRequest": "100m", "memory": "640m"},
    "spark": {"driverMemory": "640m", "conf": {"spark.ui.enabled": "false"}},
}


class Release:
    """The chart in a namespace that admits only pods of Kubernetes' strictest standard.

    Args:
        kubectl: of any namespace.
        kubeconfig: the file with the address and the token.
        name: of the release and of its namespace.
        shared: a folder of this machine that all of its pods have by the same path.
    """

    def __init__(self, kubectl: Kubectl, kubeconfig: Path, name: str, shared: Path) -> None:
        self.kubectl = kubectl.within(name)
        self.shared = shared
        self._name, self._kubeconfig = name, kubeconfig
        self._values: dict[str, Any] = {}
        shared.mkdir(parents=True)
        shared.chmod(0o777)
        labels = {"tests": "true", "pod-security.kubernetes.io/enforce": "restricted"}
        volume = {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": name,
            "hostPath": {"path": str(shared)},
        }
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": volume,
            },
        )

    def install(self, values: Mapping[str, Any]) -> None:
        """Install the chart.

        Args:
            values: in addition to those of small containers.
        """
        storage = {"storage": {"mountPath": str(self.shared), "storageClassName": self._name}}
        self._values = _merged(_merged(_SMALL, storage), values)
        self.upgrade({})

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Change some values, and keep all others."""
        self._values = _merged(self._values, values)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self._values, file)
            file.flush()
            run(
                *(str(helm()), f"--kubeconfig={self._kubeconfig}"),
                *(f"--namespace={self.kubectl.namespace}", "upgrade", "--install"),
                *(self._name, str(CHART), f"--values={file.name}"),
            )

    def remove(self) -> None:
        """Remove what the chart has made, except for what outlives it; wait for the end of pods."""
        run(
            *(str(helm()), f"--kubeconfig={self._kubeconfig}"),
            *(f"--namespace={self.kubectl.namespace}", "uninstall", self._name),
        )
        # Kubernetes removes executors once their driver is gone.
        wait_until(lambda: not self.kubectl.objects("pods"), "the end of all pods", poll_s=0.5)

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[None]:
        """Forward the job server's ports, so that it is at ``localhost:8099``."""
        with self.kubectl.forward(f"{self._name}-job-server", 8099, 8098):
            yield

    def folder(self, name: str) -> Path:
        """Make a folder of the shared storage that all pods can write; return its path."""
        folder = self.shared / name
        folder.mkdir()
        folder.chmod(0o777)
        return folder


def render(values: Mapping[str, Any], *arguments: str) -> str:
    """Return the objects of the chart as YAML, without a cluster."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        values_of = f"--values={file.name}"
        # Which Helm cannot ask here.
        version = f"--kube-version={VERSION}"
        return run(str(helm()), "template", "beam", str(CHART), values_of, version, *arguments)


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        earlier = merged.get(key)
        if isinstance(earlier, Mapping) and isinstance(value, Mapping):
            value = _merged(earlier, value)
        merged[key] = value
    return merged
