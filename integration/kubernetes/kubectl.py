"""Kubernetes' own client, as tests call it."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from integration.kubernetes.machine import run
from integration.waiting import wait_until


class Kubectl:
    """Calls it for one namespace.

    Args:
        program: its path.
        kubeconfig: the file with the address and the token.
        namespace: of all objects that have one.
    """

    def __init__(self, program: Path, kubeconfig: Path, namespace: str = "default") -> None:
        self._program, self._kubeconfig = program, kubeconfig
        self.namespace = namespace

    def within(self, namespace: str) -> "Kubectl":
        """Return the same for another namespace."""
        return Kubectl(self._program, self._kubeconfig, namespace)

    def run(self, *arguments: str, content: str | None = None) -> str:
        """Run a command; return what it says on stdout.

        Raises:
            RuntimeError: it failed; with its words.
        """
        return run(*self._command, *arguments, content=content)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Make objects, or change them."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.run("apply", "--filename=-", content=json.dumps(items))

    def objects(self, kind: str, selector: str = "") -> Sequence[Mapping[str, Any]]:
        """Return all objects of a kind, with the labels of a selector."""
        found = json.loads(self.run("get", kind, f"--selector={selector}", "--output=json"))
        return tuple(found["items"])

    def pods(self, component: str) -> dict[str, Mapping[str, Any]]:
        """Return the pods of a component of the chart that are not being deleted, by their ids."""
        found = self.objects("pods", f"app.kubernetes.io/component={component}")
        alive = (each for each in found if "deletionTimestamp" not in each["metadata"])
        return {each["metadata"]["uid"]: each for each in alive}

    def log(self, pod: str) -> str:
        """Return what the containers of a pod have written."""
        return self.run("logs", pod, "--all-containers")

    @contextlib.contextmanager
    def forward(self, service: str, *ports: int) -> Iterator[None]:
        """Forward ports of this machine to the same ones of a service."""
        command = [*self._command, "port-forward", f"service/{service}", *map(str, ports)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
            try:
                assert forwarding.stdout is not None
                for _ in ports:
                    if not forwarding.stdout.readline().startswith("Forwarding"):
                        raise RuntimeError(f"kubectl forwards no ports of {service}")
                yield
            finally:
                forwarding.terminate()

    @property
    def _command(self) -> tuple[str, ...]:
        settings = (f"--kubeconfig={self._kubeconfig}", f"--namespace={self.namespace}")
        return (str(self._program), *settings)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod says that it serves."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def wait_for(kubectl: Kubectl, component: str, count: int = 1) -> list[str]:
    """Wait until a component has as many pods that are ready; return their names."""
    found: list[str] = []

    def are_ready() -> bool:
        pods = kubectl.pods(component).values()
        found[:] = [str(each["metadata"]["name"]) for each in pods if is_ready(each)]
        return len(found) == count

    wait_until(are_ready, f"{count} pods of {component}", timeout_s=600.0, poll_s=0.5)
    return found
