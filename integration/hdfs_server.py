"""A real HDFS on this machine: namenodes and a datanode, which tests may kill."""

import contextlib
import getpass
import json
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from integration.ports import free_ports

JARS = Path(sys.prefix) / "hdfs"
USER = "beam"
"""Whose folders tests use; not the superuser, who may do anything."""
_LOGGING = Path(__file__).parent / "hdfs" / "log4j.properties"
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_PAIR_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_START_TIMEOUT_S = 300.0
_ANSWER_TIMEOUT_S = 60.0
_POLL_S = 0.1
_LOG_BYTES = 4000


class Hdfs:
    """A namenode and a datanode, each a process.

    Args:
        folder: for their data, settings and logs; empty.

    Attributes:
        rpc_port: of namenodes, for Hadoop's own protocol.
        web_port: of namenodes, for WebHDFS.
    """

    jars = JARS
    """Where ``make`` has put the jars of its servers."""
    tls: ssl.SSLContext | None = None
    """With the CA of the servers, if they speak HTTPS."""

    def __init__(self, folder: Path) -> None:
        if not (self.jars / ".ready").exists():
            raise RuntimeError(f"the HDFS for tests is missing: make {self.jars}/.ready")
        self._folder, self._conf = folder, folder / "conf"
        self.rpc_port, self.web_port = free_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._conf.mkdir()
        shutil.copy(_LOGGING, self._conf)
        for pages in ("hdfs", "datanode"):  # for people, which Maven's jars lack
            (self._conf / "webapps" / pages).mkdir(parents=True)
        self._write("core-site.xml", {"fs.defaultFS": self.folder("").partition(f"/{USER}")[0]})
        settings = {
            "hadoop.tmp.dir": folder / "tmp",
            "dfs.datanode.data.dir": f"file://{folder}/data",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            # Redirections lead to this name.
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": 1,
            "dfs.heartbeat.interval": 1,
            # It leaves safe mode as soon as the datanode has reported its blocks.
            "dfs.namenode.safemode.min.datanodes": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.redundancy.considerLoad": "false",
            **self._of_namenodes(),
        }
        self._write("hdfs-site.xml", settings)

    @property
    def environment(self) -> Mapping[str, str]:
        """What clients need in the environment of their processes."""
        return {}

    @property
    def checkpoint_flags(self) -> Sequence[str]:
        """Options of a pipeline that has its checkpoint here."""
        return [f"--{name}={value}" for name, value in self.settings]

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The same for ``UrlFolder``."""
        return (("hdfs_port", str(self.web_port)), ("hdfs_user", USER))

    def folder(self, name: str) -> str:
        """Return the URL of a folder that this user may make."""
        return f"hdfs://127.0.0.1:{self.rpc_port}/{USER}/{name}"

    def start(self) -> None:
        """Start it for the first time.

        Raises:
            RuntimeError: it does not start.
        """
        self._run(_NAMENODE, "-format", "-nonInteractive")
        self._start("namenode", _NAMENODE)
        self.start_datanode()
        self._make_folder()

    def start_namenode(self) -> None:
        """Start the namenode once more, and wait until files can be written."""
        self._start("namenode", _NAMENODE)
        self._wait()

    def start_datanode(self) -> None:
        """Start the datanode, and wait until files can be written."""
        self._start("datanode", _DATANODE)
        self._wait()

    def kill_namenode(self) -> None:
        """End it as the kernel does when memory is short."""
        self._kill("namenode")

    def kill_datanode(self) -> None:
        """End it in the same way."""
        self._kill("datanode")

    def set_safe_mode(self, *, is_on: bool) -> None:
        """Enter or leave the mode in which nothing can be changed."""
        self._run(_ADMIN, "-safemode", "enter" if is_on else "leave")

    def close(self) -> None:
        """End all processes."""
        for name in list(self._processes):
            self._kill(name)

    def _of_namenodes(self) -> Mapping[str, object]:
        return {
            "dfs.namenode.name.dir": f"file://{self._folder}/name",
            "dfs.namenode.rpc-address": f"127.0.0.1:{self.rpc_port}",
            "dfs.namenode.http-address": f"127.0.0.1:{self.web_port}",
        }

    def _write(self, name: str, settings: Mapping[str, object], conf: Path | None = None) -> None:
        properties = "".join(
            f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n"
            for key, value in settings.items()
        )
        text = f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'
        ((conf or self._conf) / name).write_text(text)

    def _java(
        self, *arguments: str, conf: Path | None = None, jars: Path | None = None
    ) -> list[str]:
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"]
        opened = ["--add-opens=java.base/java.lang=ALL-UNNAMED"]
        classes = ["-cp", f"{conf or self._conf}:{jars or self.jars}/*"]
        return ["java", *options, *opened, *self._java_options, *classes, *arguments]

    @property
    def _superuser(self) -> str:
        """Whoever has started the namenode."""
        return getpass.getuser()

    @property
    def _java_options(self) -> Sequence[str]:
        return []

    def _run(self, *arguments: str) -> None:
        """Run a program to its end, which must be a good one."""
        done = subprocess.run(
            self._java(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            said = done.stdout[-_LOG_BYTES:]
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {said}")

    def _start(self, name: str, *arguments: str) -> None:
        with self._log(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self._java(*arguments), stdout=output, stderr=output
            )

    def _kill(self, name: str) -> None:
        if (process := self._processes.pop(name, None)) is not None:
            process.kill()
            process.wait()

    def _wait(self, host: str = "127.0.0.1", *, datanodes: int = 1) -> None:
        """Wait until a namenode answers and, with datanodes, has left safe mode."""
        deadline, seen = time.monotonic() + _START_TIMEOUT_S, ("away", 0)
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise self._failed(f"the {name} ended with {process.returncode}")
            with contextlib.suppress(OSError):
                seen = self._state(host)
                if not datanodes or (seen[0] == "Operational" and seen[1] >= datanodes):
                    return
            time.sleep(_POLL_S)
        raise self._failed(f"HDFS does not become ready: it is {seen[0]}, {seen[1]} datanodes")

    def _state(self, host: str) -> tuple[str, int]:
        """Return a namenode's state, and how many datanodes have registered."""
        query = "qry=Hadoop:service=NameNode,name=FSNamesystemState"
        beans = json.loads(self._asked("GET", host, f"/jmx?{query}"))["beans"]
        # There are none while it starts.
        return (beans[0]["FSState"], beans[0]["NumLiveDataNodes"]) if beans else ("starting", 0)

    def _make_folder(self) -> None:
        query = f"op=MKDIRS&permission=777&user.name={self._superuser}"
        self._asked("PUT", "127.0.0.1", f"/webhdfs/v1/{USER}?{query}")

    def _asked(self, method: str, host: str, path: str) -> bytes:
        """Send a request of the superuser to a namenode."""
        url = f"{'https' if self.tls else 'http'}://{host}:{self.web_port}{path}"
        request = Request(url, method=method)
        with urlopen(request, timeout=_ANSWER_TIMEOUT_S, context=self.tls) as answer:
            content: bytes = answer.read()
        return content

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _failed(self, what: str) -> RuntimeError:
        said = [what]
        for log in self._folder.glob("*.log"):
            # One line names all jars.
            lines = [line for line in log.read_text().splitlines() if "classpath = " not in line]
            said += [f"{log.name}:", "\n".join(lines)[-_LOG_BYTES:]]
        return RuntimeError("\n".join(said))


class HdfsWithStandby(Hdfs):
    """Two namenodes, of which the first one is active until ``fail_over``, and a datanode.

    They have one port at two addresses of the loopback device.
    """

    hosts = "127.0.0.1", "127.0.0.2"

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return (("hdfs_host", ",".join(self.hosts)), *super().settings)

    def folder(self, name: str) -> str:
        return f"hdfs://pair/{USER}/{name}"

    def start(self) -> None:
        first, second = (f"-Ddfs.ha.namenode.id=nn{host[-1]}" for host in self.hosts)
        self._run(_NAMENODE, first, "-format", "-nonInteractive")
        self._start("namenode", _NAMENODE, first)
        self._wait(datanodes=0)
        self._run(_NAMENODE, second, "-bootstrapStandby", "-nonInteractive")
        self._start("standby", _NAMENODE, second)
        self._wait(self.hosts[1], datanodes=0)
        self._run(_PAIR_ADMIN, "-transitionToActive", "nn1")
        self.start_datanode()
        self._make_folder()
        self._wait(self.hosts[1])

    def fail_over(self) -> None:
        """Kill the active namenode, and have the standby take its place."""
        self.kill_namenode()
        self._run(_PAIR_ADMIN, "-failover", "nn1", "nn2")

    def _of_namenodes(self) -> Mapping[str, object]:
        found: dict[str, object] = {
            "dfs.nameservices": "pair",
            "dfs.ha.namenodes.pair": "nn1,nn2",
            "dfs.namenode.shared.edits.dir": f"file://{self._folder}/shared",
            "dfs.client.failover.proxy.provider.pair": "org.apache.hadoop.hdfs.server.namenode.ha."
            "ConfiguredFailoverProxyProvider",
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": 1,
        }
        for host in self.hosts:
            name = f"pair.nn{host[-1]}"
            found[f"dfs.namenode.name.dir.{name}"] = f"file://{self._folder}/name-{host[-1]}"
            found[f"dfs.namenode.rpc-address.{name}"] = f"{host}:{self.rpc_port}"
            found[f"dfs.namenode.http-address.{name}"] = f"{host}:{self.web_port}"
        return found


@contextlib.contextmanager
def started_hdfs(hdfs: Hdfs) -> Iterator[None]:
    """Start an HDFS; it ends with the context."""
    try:
        hdfs.start()
        yield
    finally:
        hdfs.close()


@contextlib.contextmanager
def start_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Make and start an HDFS with one namenode; it ends with the context."""
    hdfs = Hdfs(folder)
    with started_hdfs(hdfs):
        yield hdfs
