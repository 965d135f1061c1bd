"""A real HDFS on this machine: a namenode and a datanode, which tests may kill."""

import contextlib
import getpass
import json
import shutil
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
_START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_LOG_BYTES = 4000


class Hdfs:
    """A namenode and a datanode, each a process.

    Args:
        folder: for their data, settings and logs; empty.

    Attributes:
        rpc_port: of the namenode, for Hadoop's own protocol.
        web_port: of the namenode, for WebHDFS.
    """

    def __init__(self, folder: Path) -> None:
        if not (JARS / ".ready").exists():
            raise RuntimeError(f"the HDFS for tests is missing: make {JARS}/.ready")
        self._folder, self._conf = folder, folder / "conf"
        self.rpc_port, self.web_port = free_ports(2)
        self._conf.mkdir()
        shutil.copy(_LOGGING, self._conf)
        self._write("core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{self.rpc_port}"})
        settings = {
            "hadoop.tmp.dir": folder / "tmp",
            "dfs.namenode.name.dir": f"file://{folder}/name",
            "dfs.datanode.data.dir": f"file://{folder}/data",
            "dfs.namenode.rpc-address": f"127.0.0.1:{self.rpc_port}",
            "dfs.namenode.http-address": f"127.0.0.1:{self.web_port}",
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
        }
        self._write("hdfs-site.xml", settings)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._run(_NAMENODE, "-format", "-nonInteractive")

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
        """Start it, with the files that it has.

        Raises:
            RuntimeError: it does not start.
        """
        self.start_namenode(is_alone=True)
        self.start_datanode()
        self._ask("PUT", f"/{USER}?op=MKDIRS&permission=777")

    def start_namenode(self, *, is_alone: bool = False) -> None:
        """Start the namenode, and wait until files can be written.

        Args:
            is_alone: there is no datanode yet, so wait for its answers only.
        """
        self._start(_NAMENODE)
        states = ("Operational", "safeMode") if is_alone else ("Operational",)
        self._wait_for(states, 0 if is_alone else 1)

    def start_datanode(self) -> None:
        """Start the datanode, and wait until files can be written."""
        self._start(_DATANODE)
        self._wait_for(("Operational",), 1)

    def kill_namenode(self) -> None:
        """End it as the kernel does when memory is short."""
        self._kill(_NAMENODE)

    def kill_datanode(self) -> None:
        self._kill(_DATANODE)

    def set_safe_mode(self, *, is_on: bool) -> None:
        """Enter or leave the mode in which nothing can be changed."""
        self._run(_ADMIN, "-safemode", "enter" if is_on else "leave")

    def close(self) -> None:
        for name in list(self._processes):
            self._kill(name)

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        properties = "".join(
            f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n"
            for key, value in settings.items()
        )
        text = f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'
        (self._conf / name).write_text(text)

    def _java(self, *arguments: str) -> list[str]:
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"]
        opened = ["--add-opens=java.base/java.lang=ALL-UNNAMED"]
        return ["java", *options, *opened, "-cp", f"{self._conf}:{JARS}/*", *arguments]

    def _log(self, program: str) -> Path:
        return self._folder / f"{program.rpartition('.')[2]}.log"

    def _run(self, *arguments: str) -> None:
        """Run a program to its end, which must be a good one."""
        done = subprocess.run(
            self._java(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            said = done.stdout[-_LOG_BYTES:]
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {said}")

    def _start(self, program: str) -> None:
        with self._log(program).open("ab") as output:
            self._processes[program] = subprocess.Popen(
                self._java(program), stdout=output, stderr=output
            )

    def _kill(self, program: str) -> None:
        if (process := self._processes.pop(program, None)) is not None:
            process.kill()
            process.wait()

    def _wait_for(self, states: Sequence[str], datanodes: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        seen = "away", 0
        while time.monotonic() < deadline:
            for program, process in self._processes.items():
                if process.poll() is not None:
                    raise self._failed(f"{program} ended with {process.returncode}")
            with contextlib.suppress(OSError):
                seen = self._state()
                if seen[0] in states and seen[1] >= datanodes:
                    return
            time.sleep(_POLL_S)
        raise self._failed(f"HDFS does not become ready: it is {seen[0]}, with {seen[1]} datanodes")

    def _state(self) -> tuple[str, int]:
        """Return the namenode's state, and how many datanodes have registered."""
        query = "qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with urlopen(f"http://127.0.0.1:{self.web_port}/jmx?{query}", timeout=10) as answer:
            beans = json.load(answer)["beans"]
        # There are none while it starts.
        return (beans[0]["FSState"], beans[0]["NumLiveDataNodes"]) if beans else ("starting", 0)

    def _ask(self, method: str, request: str) -> None:
        url = f"http://127.0.0.1:{self.web_port}/webhdfs/v1{request}&user.name={getpass.getuser()}"
        with urlopen(Request(url, method=method), timeout=60):
            return

    def _failed(self, what: str) -> RuntimeError:
        logs = [self._log(program) for program in (_NAMENODE, _DATANODE)]
        said = [f"{log.name}: {log.read_text()[-_LOG_BYTES:]}" for log in logs if log.exists()]
        return RuntimeError("\n".join([what, *said]))


@contextlib.contextmanager
def start_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Start an HDFS; it ends with the context."""
    hdfs = Hdfs(folder)
    try:
        hdfs.start()
        yield hdfs
    finally:
        hdfs.close()
