"""The node of a Kubernetes: containerd, a kubelet, and the network of pods, on this machine."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from integration.kubernetes.control_plane import NODE, ControlPlane
from integration.kubernetes.kubectl import Kubectl
from integration.kubernetes.machine import Processes, mounts_below, run
from integration.kubernetes.needs import PLUGINS
from integration.kubernetes.pod_images import PAUSE
from integration.ports import free_ports
from integration.waiting import wait_until

_BRIDGE = "beam-pods"
_ADDRESS = "10.89.0.1"
_PODS = "10.89.0.0/24"
_GROUPS = Path("/sys/fs/cgroup")
_ROOT_GROUP = "beam-kubernetes"
_CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{pause}"
  # Not each root may lower it: that of a container may not.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""


class Node:
    """A Kubernetes of one node.

    Args:
        folder: for all that it writes; it is short, since sockets are in it.
        programs: the folder of Kubernetes' programs.

    Attributes:
        plane: what decides which pods run.
        kubeconfig: a file by which an administrator connects.
        kubectl: for the same.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self.processes = Processes(folder)
        self.plane = ControlPlane(folder, programs, _ADDRESS)
        self.kubeconfig = self.plane.kubeconfig("admin")
        self.kubectl = Kubectl(programs / "kubectl", self.kubeconfig)
        self._socket = folder / "c.sock"

    def start(self, images: Path) -> None:
        """Start everything, and wait until the node takes pods.

        Args:
            images: what ``docker save`` has written: all that pods need.
        """
        self._make_network()
        self.plane.start(self.processes)
        settings = self._folder / "containerd.toml"
        text = _CONTAINERD.format(folder=self._folder, pause=PAUSE, plugins=PLUGINS)
        settings.write_text(text)
        self.processes.start("containerd", ["containerd", f"--config={settings}"])
        self._wait(self._socket.is_socket, "containerd")
        run(*self._ctr, "images", "import", str(images))
        self._wait(self._answers, "the API server")
        self._start_kubelet()
        self._start_proxy()
        self._wait(self._is_ready, "the node")

    def close(self) -> None:
        """End all pods, all processes, and remove what they have made on this machine."""
        with contextlib.suppress(RuntimeError):  # the API server may not run
            self.kubectl.run("delete", "namespaces", "--selector=tests=true", "--timeout=120s")
        with contextlib.suppress(RuntimeError, TimeoutError):
            wait_until(lambda: not self._tasks(), "the end of pods", 60.0, 0.3)
        with contextlib.suppress(RuntimeError):
            for task in self._tasks():
                run(*self._ctr, "tasks", "kill", "--signal=KILL", task)
            wait_until(lambda: "RUNNING" not in run(*self._ctr, "tasks", "ls"), "the end of tasks")
            for task in self._tasks():
                run(*self._ctr, "tasks", "delete", "--force", task)
        self.processes.close()
        with contextlib.suppress(RuntimeError):
            run(str(self._programs / "kube-proxy"), "--proxy-mode=nftables", "--cleanup")
        for path in mounts_below(self._folder):
            run("umount", path)
        self._remove_network()
        for controller in _GROUPS.iterdir():
            for group in sorted((controller / _ROOT_GROUP).glob("**/"), reverse=True):
                if group.is_dir():
                    group.rmdir()
        for network in Path("/var/run/netns").glob("cni-*"):
            run("ip", "netns", "delete", network.name)

    @property
    def _ctr(self) -> tuple[str, ...]:
        return ("ctr", f"--address={self._socket}", "--namespace=k8s.io")

    def _tasks(self) -> list[str]:
        return run(*self._ctr, "tasks", "ls", "--quiet").split()

    def _start_kubelet(self) -> None:
        (kubelet,) = free_ports(1)
        for controller in _GROUPS.iterdir():
            if (controller / "cgroup.procs").exists():
                (controller / _ROOT_GROUP).mkdir(exist_ok=True)
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "address": _ADDRESS,
            "port": kubelet,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.plane.ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{_ROOT_GROUP}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "resolvConf": "",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "podLogsDir": str(self._folder / "logs"),
            "volumePluginDir": str(self._folder / "volume-plugins"),
        }
        path = self._folder / "kubelet.yaml"
        path.write_text(yaml.safe_dump(settings))
        self.processes.start(
            "kubelet",
            [
                *(str(self._programs / "kubelet"), f"--config={path}", f"--node-ip={_ADDRESS}"),
                *(f"--hostname-override={NODE}", f"--root-dir={self._folder}/kubelet"),
                *(f"--kubeconfig={self.plane.kubeconfig('kubelet')}",),
                f"--cert-dir={self._folder}/kubelet-certificates",
            ],
        )

    def _start_proxy(self) -> None:
        proxy = str(self._programs / "kube-proxy")
        ports = free_ports(2)
        self.processes.start(
            "kube-proxy",
            [
                *(proxy, "--proxy-mode=nftables", f"--hostname-override={NODE}"),
                *(f"--kubeconfig={self.plane.kubeconfig('proxy')}", f"--cluster-cidr={_PODS}"),
                f"--healthz-bind-address=127.0.0.1:{ports[0]}",
                f"--metrics-bind-address=127.0.0.1:{ports[1]}",
                "--conntrack-max-per-core=0",
            ],
        )

    def _answers(self) -> bool:
        try:
            return self.kubectl.run("get", "--raw=/readyz") == "ok"
        except RuntimeError:
            return False

    def _is_ready(self) -> bool:
        found = self.kubectl.objects("nodes")
        conditions = [each for node in found for each in node["status"].get("conditions", [])]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _wait(self, holds: object, what: str) -> None:
        def does_hold() -> bool:
            self.processes.check()
            assert callable(holds)
            return bool(holds())

        wait_until(does_hold, what, poll_s=0.3)

    def _make_network(self) -> None:
        folder = self._folder / "cni"
        folder.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": _BRIDGE,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self._folder / "addresses"),
            },
        }
        content = {"cniVersion": "1.0.0", "name": "beam-pods", "plugins": [bridge]}
        (folder / "10-beam.conflist").write_text(json.dumps(content))
        self._remove_network()
        # Before the first pod, since the API server listens at its address.
        run("ip", "link", "add", _BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{_ADDRESS}/24", "dev", _BRIDGE)
        run("ip", "link", "set", _BRIDGE, "up")
        for rule in _RULES:
            run("iptables", "--insert", *rule)

    def _remove_network(self) -> None:
        for command in (
            *(("iptables", "--delete", *rule) for rule in _RULES),
            ("ip", "link", "delete", _BRIDGE),
        ):
            with contextlib.suppress(RuntimeError):  # it is not there
                run(*command)


_RULES = (
    ("FORWARD", "--in-interface", _BRIDGE, "--jump", "ACCEPT"),
    ("FORWARD", "--out-interface", _BRIDGE, "--jump", "ACCEPT"),
)
"""Docker's policy is to drop what it does not know."""


@contextlib.contextmanager
def start_node(folder: Path, programs: Path, images: Path) -> Iterator[Node]:
    """Start a Kubernetes; it ends with the context, and all that it has started with it."""
    node = Node(folder, programs)
    try:
        node.start(images)
        yield node
    finally:
        node.close()
        shutil.rmtree(folder / "containerd", ignore_errors=True)
