"""Whether pods have no more rights than the documentation says."""

from collections.abc import Iterator, Mapping
from typing import Any

from integration.kubernetes.kubectl import Kubectl

_WRITES = "id -u; touch /opt/written && echo written; touch /tmp/written && echo temporary"


def check_pods(kubectl: Kubectl) -> None:
    """Check all pods of a namespace: no root, no root file system that can be written."""
    pods = kubectl.objects("pods")
    assert pods
    for pod in pods:
        name = pod["metadata"]["name"]
        for container in _containers(pod):
            allowed = {**pod["spec"]["securityContext"], **container["securityContext"]}
            assert allowed["runAsNonRoot"], (name, container["name"])
            assert allowed["readOnlyRootFilesystem"], (name, container["name"])
            assert not allowed["allowPrivilegeEscalation"], (name, container["name"])


def check_inside(kubectl: Kubectl, pod: str) -> None:
    """Check the same from inside of a container."""
    said = kubectl.run("exec", pod, "--", "sh", "-c", f"{{ {_WRITES}; }} 2>/dev/null")
    assert said.split() == ["1000", "temporary"]


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from pod["spec"]["containers"]
    yield from pod["spec"].get("initContainers", ())
