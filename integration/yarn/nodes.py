"""A real YARN on this machine, on a real HDFS: a resource manager and two node managers."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from integration.hdfs_server import USER, Hdfs
from integration.ports import free_ports
from integration.yarn.patience import wait_until
from integration.yarn.processes import end_processes, python_in
from integration.yarn.users import container_user, options_of

HOSTS = "127.0.0.1", "127.0.0.2"
"""A node manager is a host to YARN: each has an address of the loopback device."""
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_LOGS = "org.apache.hadoop.yarn.client.cli.LogsCLI"
_SHELL = "org.apache.hadoop.fs.FsShell"
_NODE_MB = 5120
_ENDED = ("FINISHED", "FAILED", "KILLED")
_ANSWER_TIMEOUT_S = 60.0


class Yarn(Hdfs):
    """A namenode, a datanode, a resource manager and two node managers, each a process.

    Containers run as ``container_user``, whose HOME is YARN's default: a folder that is not there.

    Args:
        folder: for data, settings and logs; empty, and all users can enter it.

    Attributes:
        sockets: where Python workers have theirs. A path of a socket may not be long.
    """

    jars = Path(os.environ.get("YARN_HOME", "")) / "jars"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._user = container_user()
        self.sockets = self._made("s")
        names = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
        addresses = {
            f"yarn.resourcemanager{name}.address": f"127.0.0.1:{port}"
            for name, port in zip(names, free_ports(len(names)), strict=True)
        }
        self._manager = addresses["yarn.resourcemanager.webapp.address"]
        shared = {
            **addresses,
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.am.max-attempts": 2,
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.scheduler.maximum-allocation-mb": _NODE_MB,
            "yarn.scheduler.maximum-allocation-vcores": 8,
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": "/logs",
            # Distributions have Hadoop's jars here; PySpark has its own.
            "yarn.application.classpath": "",
            "yarn.timeline-service.enabled": "false",
        }
        self._write("yarn-site.xml", shared)
        self._write(
            "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": 100,
                "yarn.scheduler.capacity.maximum-am-resource-percent": "0.8",
                "yarn.scheduler.capacity.root.default.maximum-am-resource-percent": "0.8",
            },
        )
        for number, host in enumerate(HOSTS):
            self._configure_node(number, host, shared)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the process that submits an application needs."""
        return {
            "HADOOP_CONF_DIR": str(self._conf),
            "HADOOP_USER_NAME": USER,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return (("hdfs_host", "127.0.0.1"), *super().settings)

    def start(self) -> None:
        super().start()
        for folder in ("/logs", "/tmp", f"/user/{USER}"):
            self._make(folder)
        self._start("resource manager", _RESOURCE_MANAGER)
        for number in range(len(HOSTS)):
            self._start_node(number)
        wait_until(lambda: self._has_all_nodes(), "the node managers")

    def applications(self) -> Sequence[Mapping[str, Any]]:
        """Return what YARN knows of all applications, the first one first."""
        found = (self._of_manager("/ws/v1/cluster/apps")["apps"] or {}).get("app", [])
        return sorted(found, key=lambda each: each["id"])

    def application(self, application: str) -> Mapping[str, Any]:
        """Return what YARN knows of an application."""
        found: Mapping[str, Any] = self._of_manager(f"/ws/v1/cluster/apps/{application}")["app"]
        return found

    def attempts(self, application: str) -> int:
        """Return how often the driver of an application, or its master, was started."""
        found = self._of_manager(f"/ws/v1/cluster/apps/{application}/appattempts")
        return len(found["appAttempts"]["appAttempt"])

    def kill(self, application: str) -> None:
        """Do what ``yarn application -kill`` does."""
        path = f"/ws/v1/cluster/apps/{application}/state?user.name={USER}"
        self._of_manager(path, {"state": "KILLED"})

    def logs(self, application: str) -> str:
        """Return the logs of all containers of an application that has ended."""
        wait_until(
            lambda: self.application(application)["logAggregationStatus"] == "SUCCEEDED",
            "the logs of all nodes",
        )
        return self._output(_LOGS, "-applicationId", application)

    def python_workers(self, application: str) -> list[int]:
        """Return the ids of the processes in which an application's executors run Python."""
        return python_in(self._folder, application)

    def files(self, folder: str) -> list[str]:
        """Return the paths of the files in a folder of HDFS, and in its folders."""
        lines = self._output(_SHELL, "-ls", "-R", folder).splitlines()
        return [line.split()[-1] for line in lines if line.startswith("-")]

    def read(self, pattern: str) -> str:
        """Return the text of files of HDFS."""
        return self._output(_SHELL, "-cat", pattern)

    def upload(self, source: Path, name: str) -> str:
        """Copy a file to HDFS; return its URL."""
        url = self.folder(name)
        self._run(_SHELL, "-put", "-f", str(source), url)
        return url

    def place(self, name: str) -> Path:
        """Make a folder of this machine in which containers may write; return its path."""
        return self._made(name)

    def close(self) -> None:
        """End all applications, then all processes, also those of containers."""
        with contextlib.suppress(OSError):  # the manager may not run
            running = [each["id"] for each in self.applications() if each["state"] not in _ENDED]
            for each in running:
                self.kill(each)
            wait_until(
                lambda: all(self.application(each)["state"] in _ENDED for each in running),
                "the end of the applications",
            )
        # Node managers take half a minute to end by themselves.
        super().close()
        end_processes(self._folder)

    def _configure_node(self, number: int, host: str, shared: Mapping[str, object]) -> None:
        conf = self._folder / f"conf-{number}"
        shutil.copytree(self._conf, conf)
        names = ("", ".localizer", ".webapp", ".collector-service")
        local, logs = self._made(f"local-{number}"), self._made(f"logs-{number}")
        self._write(
            "yarn-site.xml",
            {
                **shared,
                **{
                    f"yarn.nodemanager{name}.address": f"{host}:{port}"
                    for name, port in zip(names, free_ports(len(names)), strict=True)
                },
                "yarn.nodemanager.hostname": host,
                "yarn.nodemanager.bind-host": host,
                "yarn.nodemanager.local-dirs": local,
                "yarn.nodemanager.log-dirs": logs,
                "yarn.nodemanager.resource.memory-mb": _NODE_MB,
                "yarn.nodemanager.resource.cpu-vcores": 8,
                # Of address space, of which Arrow and Java reserve much more than they use.
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.heartbeat.interval-ms": 250,
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
            },
            conf,
        )

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        folder.chmod(0o1777)
        os.chown(folder, self._user.uid, self._user.gid)
        return folder

    def _start_node(self, number: int) -> None:
        # The jars may be where this user cannot go.
        jars = linked(self.jars, self._folder / "jars")
        name = f"node manager {number}"
        with self._log(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self._java(_NODE_MANAGER, conf=self._folder / f"conf-{number}", jars=jars),
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={**os.environ, "HADOOP_USER_NAME": USER},
                **options_of(self._user),
            )

    def _has_all_nodes(self) -> bool:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise self._failed(f"the {name} ended with {process.returncode}")
        try:
            nodes = self._of_manager("/ws/v1/cluster/nodes")["nodes"] or {}
        except OSError:
            return False
        running = [each for each in nodes.get("node", []) if each["state"] == "RUNNING"]
        return len(running) == len(HOSTS)

    def _of_manager(self, path: str, content: Mapping[str, Any] | None = None) -> Any:
        request = Request(
            f"http://{self._manager}{path}",
            data=None if content is None else json.dumps(content).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if content is None else "PUT",
        )
        with urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:
            return json.load(answer)

    def _make(self, folder: str) -> None:
        """Make a folder of HDFS in which all may write."""
        name = self._superuser
        query = f"op=MKDIRS&permission=1777&user.name={name}"
        self._asked("PUT", "127.0.0.1", f"/webhdfs/v1{folder}?{query}")

    def _output(self, *arguments: str) -> str:
        done = subprocess.run(
            self._java(*arguments),
            env={**os.environ, "HADOOP_USER_NAME": USER},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return done.stdout


def linked(source: Path, target: Path) -> Path:
    """Make a folder with the files of another one, as hard links where that is possible."""
    if not target.exists():
        target.mkdir()
        for file in source.iterdir():
            if not file.is_file():
                continue
            try:
                os.link(file, target / file.name)
            except OSError:  # it is on another disk
                shutil.copy(file, target / file.name)
    return target


@contextlib.contextmanager
def start_yarn(folder: Path) -> Iterator[Yarn]:
    """Make and start a YARN; it ends with the context, and all of its processes with it."""
    yarn = Yarn(folder)
    try:
        yarn.start()
        yield yarn
    finally:
        yarn.close()
