"""The settings with which the runner starts a Spark, and which of them a user has overridden."""

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from beam_spark_runner.harness.program_folders import import_path
from beam_spark_runner.spark.socket_folders import socket_folder

_LOOPBACK = "127.0.0.1"
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_LATER_C2 = (
    "-XX:Tier4InvocationThreshold=25000",
    "-XX:Tier4MinInvocationThreshold=3000",
    "-XX:Tier4CompileThreshold=75000",
    "-XX:Tier4BackEdgeThreshold=200000",
)
"""Five times the JVM's defaults: code is hot for longer before it is compiled once more.

A third of the CPU time of a short pipeline is the second compiler, working on
code that only Spark's start runs. Hot code of a long pipeline is compiled anyway.
"""


def settings_of_runner(
    temporary: str | None, *, is_local: bool, has_fresh_jvm: bool, given: Mapping[str, str]
) -> dict[str, str]:
    """Return what the runner sets unless a user does.

    Args:
        temporary: the folder for temporary files of a local Spark. None: Java's.
        is_local: whether tasks run in the JVM of the driver.
        has_fresh_jvm: whether this process starts the JVM.
        given: the settings of the pipeline.
    """
    settings = {
        "spark.ui.showConsoleProgress": "false",
        # Over TCP each Spark stage waits 40 ms for a delayed ACK (Spark 4.1+; ignored before).
        "spark.python.unix.domain.socket.enabled": "true",
        # Many tasks read what one task has written: by default all of them run, one after
        # another, on the host that has it, and the other executors are idle.
        "spark.shuffle.reduceLocality.enabled": "false",
        # Spark 3.5 has no setting of the session for it.
        "spark.python.worker.faulthandler.enabled": "true",
    }
    # By default they lie in Java's temp folder, which YARN makes longer than a path of a socket may
    # be.
    of_sockets = socket_folder(temporary) if is_local else "/tmp"
    if of_sockets != (temporary or tempfile.gettempdir()):
        settings["spark.python.unix.domain.socket.dir"] = of_sockets
    if is_local:
        # No port on the network; and no warning about this machine's own host name.
        settings["spark.driver.host"] = _LOOPBACK
        settings["spark.driver.bindAddress"] = _LOOPBACK
        # Python puts the folder of the running script on its import path, but not on that of
        # its workers. On a cluster the folder may not exist: users pass --py-files there.
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(import_path())
    if has_fresh_jvm:
        # The "default" options are the one set of JVM flags that users do not commonly set:
        # those of spark-defaults.conf are added (``keep_chosen``).
        flags = [*_LATER_C2] if is_local else []
        if temporary is not None:
            # The default of spark.local.dir: Spark makes folders for its rows that all can read.
            flags.append(shlex.quote(f"-Djava.io.tmpdir={temporary}"))
        log_settings = Path(__file__).with_name("log4j2.properties")
        if log_settings.is_file() and not _user_configures_logging(given):
            flags.append(f"-Dlog4j2.configurationFile={log_settings.as_uri()}")
        settings[_JAVA_OPTIONS] = " ".join(flags)
    return settings


def add_flags(settings: dict[str, str], flags: Sequence[str]) -> None:
    """Add flags of the JVM to settings."""
    quoted = map(shlex.quote, flags)
    settings[_JAVA_OPTIONS] = " ".join([settings.get(_JAVA_OPTIONS, ""), *quoted]).strip()


def keep_chosen(
    settings: dict[str, str], chosen: Mapping[str, str], given: Mapping[str, str]
) -> None:
    """Let the user's Spark configuration override what only the runner has set.

    Args:
        settings: those to start with: the runner's, and the ones that are given. Changed.
        chosen: what ``spark-submit`` or Spark's configuration have, see ``chosen_settings``.
        given: the settings of the pipeline, which have precedence.
    """
    for name in settings.keys() & chosen.keys() - given.keys():
        if name == _JAVA_OPTIONS:  # of two that contradict each other, the JVM takes the last one
            settings[name] = f"{settings[name]} {chosen[name]}"
        else:
            del settings[name]


def _user_configures_logging(given: Mapping[str, str]) -> bool:
    if any(
        "log4j" in value for value in (*given.values(), os.environ.get("SPARK_SUBMIT_OPTS", ""))
    ):
        return True
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    return bool(folder) and any(Path(str(folder)).glob("log4j2.*"))
