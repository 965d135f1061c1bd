"""A real Spark cluster on this machine: a master and workers as separate processes.

It is started from the pyspark package, listens on the loopback only, and leaves
no process behind. Next to it ``local-cluster[…]``, whose master and workers are threads of the
driver's JVM: quicker to start, but all its executors are on one host.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE_ROOT = Path(__file__).parents[1]
SLOTS = 6
"""Of the whole cluster that ``start_cluster`` starts."""
CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""Settings of Spark's own checks whether a task that ran again made the same rows."""
QUICK = {
    # An executor that is gone is asked three times; by default, every five seconds.
    "spark.shuffle.io.retryWait": "200ms",
    # Else each worker of every executor that replaces one imports Beam for itself.
    "spark.python.daemon.module": "beam_spark_runner.spark.worker.daemon",
}
"""Settings of a session in which executors die often."""
_START_TIMEOUT_S = 180.0
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass
class Cluster:
    """What tests need to know of a running cluster. Made by ``start_cluster``."""

    master_url: str
    python: str  # of the executors
    folder: Path  # work directories and logs
    workers: Sequence[int]  # process ids; none: they are in the driver's JVM
    killed: list[int] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's process needs in its environment."""
        return {"PYSPARK_PYTHON": self.python, "SPARK_LOCAL_IP": "127.0.0.1"}

    @property
    def conf(self) -> dict[str, str]:
        """Settings for an application on this cluster: one executor of three slots per worker."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.cores": "3",
            "spark.executor.memory": "900m",
            "spark.executorEnv.PYTHONPATH": str(PACKAGE_ROOT),
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.ui.enabled": "false",
            # The next executor of a worker would read the disk of the dead one.
            "spark.shuffle.readHostLocalDisk": "false",
        }

    @contextlib.contextmanager
    def session(self, name: str, conf: Mapping[str, str] | None = None) -> "Iterator[SparkSession]":
        """A session on this cluster, as a user would have built it.

        Args:
            name: of the application.
            conf: settings in addition to ``self.conf``.
        """
        from beam_spark_runner.spark.session.launch import start_classic

        before = dict(os.environ)
        os.environ.update(self.environment)
        session = start_classic(self.master_url, name, {**self.conf, **(conf or {})})
        os.environ.clear()
        os.environ.update(before)
        try:
            if session.sparkContext.master != self.master_url:
                raise RuntimeError("another test of this process has left its session")
            yield session
        finally:
            session.stop()

    def executors(self) -> list[int]:
        """Return the process ids of the executors that are up; of a local cluster, all below."""
        return [
            pid
            for pid in _descendants(self.workers or [os.getpid()])
            if _EXECUTOR in _read(f"/proc/{pid}/cmdline").split(b"\0")
        ]

    def processes(self) -> list[int]:
        """Return the process ids of the executors that are up, and of their Python workers."""
        executors = self.executors()
        daemons = _children(executors)
        return [*executors, *_descendants(daemons)]

    def local_files(self) -> list[Path]:
        """Return what lies in the local folders of applications, whose workers remain."""
        return [path for folder in self.folder.glob("local-*/*") for path in folder.iterdir()]

    def kill_executor(self, which: int = 0) -> int | None:
        """``kill -9`` one executor. Returns its process id, or None where none is up."""
        running = sorted(self.executors())
        if not running:
            return None
        pid = running[which % len(running)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
        return pid


def wait_for_executors(session: "SparkSession", count: int = 2) -> None:
    """Wait until as many have registered: one that was killed is replaced after some seconds."""
    known = session.sparkContext._jsc.sc().getExecutorMemoryStatus
    deadline = time.monotonic() + _START_TIMEOUT_S
    while known().size() <= count:  # the driver is among them
        if time.monotonic() > deadline:
            raise TimeoutError(f"{known().size() - 1} executor(s) are up, not {count}")
        time.sleep(0.2)


def local_cluster(*, workers: int = 2, slots: int = 3) -> Cluster:
    """Return a cluster that each session on it starts in its own JVM."""
    return Cluster(
        f"local-cluster[{workers},{slots},1024]", sys.executable, Path(tempfile.gettempdir()), []
    )


@contextlib.contextmanager
def start_cluster(
    *,
    workers: int = 2,
    slots: int = 3,
    python: str = sys.executable,
    spark_home: Path | None = None,
) -> Iterator[Cluster]:
    """Start a master and workers; stop them, and all that they started, at the end.

    Each worker has a separate address (127.0.0.1, 127.0.0.2, …): Spark starts the
    second copy of a slow task on another host only.

    Args:
        workers: how many.
        slots: of each worker.
        python: what executors run user code with.
        spark_home: of the pyspark to start; None: that of this process.
    """
    if spark_home is None:
        import pyspark

        spark_home = Path(pyspark.__file__).parent
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="beam-cluster-", ignore_cleanup_errors=True) as folder:
        try:
            master_log = Path(folder) / "master.log"
            master = _java(
                spark_home,
                master_log,
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
            started.append(master)
            found = _wait_for(r"Starting Spark master at (spark://\S+)", master_log, master)
            for number in range(workers):
                log = Path(folder) / f"worker-{number}.log"
                host = f"127.0.0.{number + 1}"
                worker = _java(
                    spark_home,
                    log,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", host, "--port", "0", "--webui-port", "0"),
                    *("--cores", str(slots), "--memory", "2g"),
                    *("--work-dir", str(Path(folder) / f"work-{number}")),
                    found[1],
                    host=host,
                    SPARK_LOCAL_DIRS=str(Path(folder) / f"local-{number}"),
                )
                started.append(worker)
                _wait_for(r"Successfully registered with master", log, worker)
            yield Cluster(found[1], python, Path(folder), [worker.pid for worker in started[1:]])
        finally:
            family = [*_descendants([process.pid for process in started])]
            for process in reversed(started):
                process.terminate()
            for process in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
            for pid in (*family, *(process.pid for process in started)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in started:
                process.wait()


def _java(
    spark_home: Path,
    log: Path,
    main: str,
    *arguments: str,
    host: str = "127.0.0.1",
    **environment: str,
) -> subprocess.Popen[bytes]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    # Spark's shell scripts would set these two; executors are started with their help.
    (core,) = spark_home.glob("jars/spark-core_*.jar")
    home_of_spark = {"SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": core.name[11:15]}
    options = ["-Xmx256m", "-Dspark.deploy.maxExecutorRetries=50"]
    options += os.environ.get("SPARK_SUBMIT_OPTS", "").split()
    options += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    out: IO[bytes]
    with log.open("wb") as out:
        return subprocess.Popen(
            [java, *options, "-cp", f"{spark_home}/jars/*", main, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **home_of_spark, "SPARK_LOCAL_IP": host, **environment},
        )


_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")


def _wait_for(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> re.Match[str]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"no {pattern!r} in:\n{log.read_text(errors='replace')}")


def end_jvm() -> None:
    """End the JVM that earlier tests have left, so that the next one has a separate class path.

    No session may be open.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM lives as long as that
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _descendants(pids: Sequence[int]) -> list[int]:
    found: list[int] = []
    below = _children(pids)
    while below:
        found += below
        below = _children(below)
    return found


def _children(pids: Sequence[int]) -> list[int]:
    parents, found = set(pids), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # The parent's id stands after the name, which may hold spaces and brackets.
            fields = _read(f"/proc/{entry.name}/stat").rpartition(b")")[2].split()
            if len(fields) > 1 and int(fields[1]) in parents:
                found.append(int(entry.name))
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # the process has ended meanwhile
        return b""
