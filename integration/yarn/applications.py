"""Programs that run on YARN, in the ways in which users start them."""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyspark

from integration.yarn.nodes import Yarn, linked
from integration.yarn.patience import wait_until

PROGRAMS = Path(__file__).parent / "programs"
_SPARK = Path(pyspark.__file__).parent
_TIMEOUT_S = 1500.0
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SMALL = {
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.yarn.am.extraJavaOptions": _QUICK,
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "640m",
    "spark.driver.memory": "640m",
    "spark.yarn.am.memory": "512m",
    "spark.ui.enabled": "false",
    # Executors that go and come are looked for at once, not every three seconds.
    "spark.yarn.scheduler.initial-allocation.interval": "100ms",
    "spark.yarn.report.interval": "200ms",
}


class Done(NamedTuple):
    """A program that has ended.

    Attributes:
        status: its exit status.
        output: what it has printed, its log among it.
        applications: the ids of its applications on YARN.
    """

    status: int
    output: str
    applications: Sequence[str]


class Running:
    """A program that runs.

    Args:
        process: of it.
        log: to which it writes.
        yarn: on which it runs.
        earlier: the ids of the applications that were there before.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, yarn: Yarn, earlier: Collection[str]
    ) -> None:
        self.process, self._log = process, log
        self._yarn, self._earlier = yarn, earlier

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, text: str) -> bool:
        """Whether it has printed a text. It must not end before."""
        said = self.output
        if text not in said and self._has_ended():
            raise AssertionError(said[-8000:])
        return text in said

    def application(self) -> str:
        """Wait until YARN has accepted it; return the id of its application."""
        wait_until(lambda: bool(self._applications()) or self._has_ended(), "an application")
        if not self._applications():
            raise AssertionError(self.output[-4000:])
        return self._applications()[0]

    def done(self) -> Done:
        """Wait for its end."""
        self.process.wait(_TIMEOUT_S)
        return Done(self.process.returncode, self.output, self._applications())

    def _applications(self) -> list[str]:
        ids = [str(each["id"]) for each in self._yarn.applications()]
        return [each for each in ids if each not in self._earlier]

    def _has_ended(self) -> bool:
        return self.process.poll() is not None


class Submitter:
    """Starts programs.

    Args:
        yarn: runs.
        folder: for their logs.
        python: that of containers, on all nodes.

    Attributes:
        conf: the settings of all applications: small containers, and their Python.
    """

    def __init__(self, yarn: Yarn, folder: Path, python: Path) -> None:
        self._yarn, self._folder = yarn, folder
        self._count = 0
        jars = linked(_SPARK / "jars", folder / f"jars-{pyspark.__version__}")
        self.conf: Mapping[str, str] = {
            **_SMALL,
            # All nodes of EMR and Dataproc have Spark's jars, too. Else they are sent each time.
            "spark.yarn.jars": f"local:{jars}/*",
            "spark.python.unix.domain.socket.dir": str(yarn.sockets),
            "spark.pyspark.python": str(python),
        }

    def python(
        self, program: str, *arguments: str, conf: Mapping[str, str] | None = None
    ) -> Running:
        """Start a program by Python; its pipeline names YARN."""
        settings = {**self.conf, **(conf or {})}
        confs = [f"--spark_conf={key}={value}" for key, value in settings.items()]
        command = [sys.executable, str(PROGRAMS / program), "--runner=SparkPortableRunner"]
        return self._start([*command, "--spark_master_url=yarn", *confs, *arguments], {})

    def client(self, program: str, *arguments: str) -> Running:
        """Start a program by Python whose pipeline names a job server."""
        command = [sys.executable, str(PROGRAMS / program), "--runner=SparkPortableRunner"]
        return self._start([*command, *arguments], {})

    def spark_submit(
        self,
        mode: str,
        program: str | Path,
        *arguments: str,
        conf: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Running:
        """Start a program by ``spark-submit``.

        Args:
            mode: ``client`` or ``cluster``: where its driver runs.
            program: its path, or its name in ``PROGRAMS``.
            arguments: of the program.
            conf: settings in addition to those of small containers.
            options: of ``spark-submit``.
        """
        settings = {**self.conf, **(conf or {})}
        if mode == "client":
            settings["spark.pyspark.driver.python"] = sys.executable
        confs = [word for each in settings.items() for word in ("--conf", "=".join(each))]
        return self._start(
            [
                str(_SPARK / "bin" / "spark-submit"),
                *("--master", "yarn", "--deploy-mode", mode, *confs, *options),
                *(str(PROGRAMS / program), "--runner=SparkPortableRunner", *arguments),
            ],
            {"SPARK_HOME": str(_SPARK)},
        )

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> Running:
        self._count += 1
        log = self._folder / f"program-{self._count}.log"
        earlier = [str(each["id"]) for each in self._yarn.applications()]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("SPARK_HOME", "PYTHONPATH") and not name.startswith("PYSPARK_")
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**inherited, **self._yarn.environment, **environment},
            )
        return Running(process, log, self._yarn, earlier)
