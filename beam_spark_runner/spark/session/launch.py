"""Starts a Spark for this program, or raises one clear error if it cannot start."""

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from pyspark import SparkConf

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.harness.private_folder import private_folder
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.java_errors import line_of, text_of_error
from beam_spark_runner.spark.session.chosen_master import (
    DEFAULT_MASTER,
    chosen_master,
    chosen_settings,
)
from beam_spark_runner.spark.session.class_archive import flags_with_archive
from beam_spark_runner.spark.session.container import python_for_executors
from beam_spark_runner.spark.session.jvm_process import end_jvm, start_jvm
from beam_spark_runner.spark.session.start_settings import (
    add_flags,
    keep_chosen,
    settings_of_runner,
)
from beam_spark_runner.spark.versions import SparkVersion
from beam_spark_runner.state.locked_folder import LockedFolder

_DEFAULT_PORTS = {"sc": 15002, "spark": 7077}
_CONNECT_TIMEOUT_S = 10.0
_LOOPBACK = "127.0.0.1"
_DEFAULT_NAME = "beam"
_DAEMON = "spark.python.daemon.module"
_NAME = "spark.app.name"
_PYTHON = "spark.pyspark.python"


def start_classic(
    master: str | None,
    app_name: str | None,
    user_conf: Mapping[str, str],
    *,
    is_for_many: bool = False,
    class_archive: str | None = None,
) -> Any:
    """Build a SparkSession with its own context.

    Args:
        master: a Spark master. None: that of ``spark-submit`` or the user's Spark
            configuration, or ``local[*]`` if they name none.
        app_name: shown in the Spark UI. None: that of ``spark-submit`` or the user's Spark
            configuration, or ``beam`` if they have none.
        user_conf: settings of the user, which override the runner's, as those of ``spark-submit``
            and the user's Spark configuration do.
        is_for_many: whether to leave out those of them that each session may have for itself (see
            ``settings_of_start``), so that sessions of later pipelines do not inherit them.
        class_archive: the folder of class archives, for a JVM that is started here. None: none.

    Raises:
        SparkSetupError: Java is missing or too old, nothing answers at the
            master's address, or Spark itself refused to start.
    """
    silence_pandas_opinion()
    _check_pyspark()
    actual_master = master or chosen_master() or DEFAULT_MASTER
    is_local = actual_master.startswith("local")
    launches_jvm = (
        not pyspark_internals.is_connected_to_jvm() and "PYSPARK_GATEWAY_PORT" not in os.environ
    )
    java = check_java() if launches_jvm else ""
    if actual_master.startswith("spark://"):
        _check_reachable(actual_master, "master")
    folder = _jvm_folder() if is_local and launches_jvm else None
    temporary = None if folder is None else str(folder.path)
    ours = settings_of_runner(
        temporary, is_local=is_local, has_fresh_jvm=launches_jvm, given=user_conf
    )
    chosen = chosen_settings([*ours, _DAEMON, _NAME, _PYTHON])
    settings = {**ours, **user_conf}
    if launches_jvm and class_archive is not None:
        add_flags(settings, flags_with_archive(class_archive, java, user_conf))
    keep_chosen(settings, chosen, user_conf)
    python = user_conf.get(_PYTHON) or chosen.get(_PYTHON) or python_for_executors()
    environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python)}
    has_our_packages = is_local and environment["PYSPARK_PYTHON"] == sys.executable
    if has_our_packages and _DAEMON not in chosen:
        settings.setdefault(_DAEMON, "beam_spark_runner.spark.worker.daemon")
    if is_local and "SPARK_LOCAL_IP" not in os.environ:
        # The only way to keep the Spark UI off the network.
        environment["SPARK_LOCAL_IP"] = _LOOPBACK
    gateway_log = logging.getLogger("py4j")
    if gateway_log.level == logging.NOTSET:
        # Many programs have the root logger at INFO, where it logs each of its sockets.
        gateway_log.setLevel(logging.WARNING)
    with _environment(environment):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        if app_name is not None or _NAME not in chosen:
            builder = builder.appName(app_name or _DEFAULT_NAME)
        if master is not None:
            builder = builder.master(master)
        own_conf = (
            {key: settings[key] for key in settings.keys() - user_conf.keys()}
            if launches_jvm
            else {}
        )
        was_started = False
        try:
            if launches_jvm:
                start_jvm(_conf_of_jvm(master, settings), folder)
                was_started = True
            left_out: dict[str, str] = {}
            if is_for_many:
                pyspark_internals.start_jvm()  # unless there is one
                of_start = settings_of_start(user_conf)
                left_out = {key: user_conf[key] for key in user_conf.keys() - of_start.keys()}
            if launches_jvm:
                _forget_in_jvm(left_out)
            for key in settings.keys() - left_out.keys():
                builder = builder.config(key, settings[key])
            try:
                with pyspark_internals.sigint_left_alone():
                    session = builder.getOrCreate()
            finally:  # also if Ctrl-C has come
                pyspark_internals.have_socket_removed()
        except BaseException as error:
            if was_started:
                end_jvm()  # the next attempt may have other settings for it
            if not isinstance(error, Exception):
                raise
            raise SparkSetupError(
                f"Spark did not start ({actual_master}): {_reason(error)}",
                "Its log is above. The settings come from --spark_master_url, --spark_conf and "
                "the Spark configuration of this machine.",
            ) from error
        _forget_in_jvm(own_conf)
    return session


def settings_of_start(conf: Mapping[str, str]) -> dict[str, str]:
    """Return those settings that only a new Spark can have. The JVM of a classic Spark runs."""
    return {key: value for key, value in conf.items() if not pyspark_internals.is_of_sessions(key)}


def _conf_of_jvm(master: str | None, settings: Mapping[str, str]) -> SparkConf:
    """Return what ``SparkSession.builder`` would start the JVM with."""
    conf = SparkConf().setAll([*settings.items()])
    return conf if master is None else conf.setMaster(master)


def _forget_in_jvm(settings: Mapping[str, str]) -> None:
    """Keep the JVM from using settings as defaults of its later sessions.

    They reach a new JVM by ``spark-submit``, which makes them properties of the JVM. A property
    with another value is the user's, from PYSPARK_SUBMIT_ARGS.
    """
    jvm = pyspark_internals.jvm()
    if jvm is None:  # it did not start
        return
    properties = jvm.java.lang.System
    for key, value in settings.items():
        if properties.getProperty(key) == value:
            properties.clearProperty(key)


def start_connect(url: str | None, user_conf: Mapping[str, str]) -> Any:
    """Open a session on a Spark Connect server.

    Args:
        url: ``sc://HOST:PORT/;…``. None: what SPARK_REMOTE says.
        user_conf: settings of the user.

    Raises:
        SparkSetupError: the client's packages are missing, or nothing answers.
    """
    silence_pandas_opinion()
    _check_pyspark()
    url = url or os.environ["SPARK_REMOTE"]
    if url.startswith("sc://"):
        _check_reachable(url, "Spark Connect server")
    try:
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise SparkSetupError(
            f"the packages of Spark Connect's client are missing: {_reason(error)}",
            "Install them: pip install 'pyspark[connect]'",
        ) from error
    session: Any
    try:
        if not url.startswith("sc://"):  # SPARK_REMOTE=local: pyspark starts a server
            from pyspark.sql import SparkSession

            session = SparkSession.builder.remote(url).getOrCreate()
        else:
            session = RemoteSession.builder.remote(url).create()
        for key, value in user_conf.items():
            session.conf.set(key, value)
        session.version  # noqa: B018  (the first call to the server)
    except Exception as error:
        raise SparkSetupError(
            f"the Spark Connect server at {without_token(url)} did not accept a session: "
            f"{_reason(error)}",
            "Check the address, the token in it, and that server and client are of one "
            f"Spark version (this client: {pyspark.__version__}).",
        ) from error
    return session


def _jvm_folder() -> LockedFolder:
    """Make a folder for Spark's temporary files that only this user can access.

    A JVM that ends by itself empties its folder and removes it. One that is killed, or ends while
    Spark starts in it, leaves files; then whoever waits for its end removes them, or the next start
    does. So the JVM inherits the lock.

    Raises:
        SparkSetupError: It cannot be made.
    """
    try:
        root = private_folder(Path(tempfile.gettempdir()) / f"beam-spark-{os.geteuid()}")
        return LockedFolder(root, "jvm-")
    except OSError as error:
        raise SparkSetupError(
            f"Spark's temporary files cannot be in {error.filename}: {error.strerror}.",
            "TMPDIR may name a folder of your own.",
        ) from error


def _check_pyspark() -> None:
    if not SparkVersion.parse(pyspark.__version__).is_served:
        raise SparkSetupError(
            f"pyspark {pyspark.__version__} is installed; this runner needs 3.5 or 4.x.",
            "Install one of them: pip install 'pyspark>=3.5,<5'",
        )


def check_java() -> str:
    """Return the path of a usable Java. Without one, pyspark reports that its gateway exited."""
    oldest = SparkVersion.parse(pyspark.__version__).oldest_java
    remedy = (
        f"Spark {pyspark.__version__} needs Java {oldest} or newer: install it, and put `java` on "
        "the PATH or set JAVA_HOME. No Java is needed with Spark Connect: "
        "--spark_master_url=sc://HOST:PORT, nor for tests: --spark_master_url=in-process"
    )
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java is on the PATH"
        raise SparkSetupError(f"Java was not found: {where}.", remedy)
    version = _java_version(java)
    if version is not None and version < oldest:
        raise SparkSetupError(f"{java} is Java {version}.", remedy)
    return java


def _java_version(java: str) -> int | None:
    """Return the feature version (8, 11, 17, …), or None where it is unknown."""
    release = Path(os.path.realpath(java)).parent.parent / "release"
    text = ""
    if release.is_file():  # saves starting a JVM only to ask it
        text = release.read_text(errors="replace")
    match = re.search(r'JAVA_VERSION="([\d.]+)', text)
    if match is None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            answer = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=30, check=False
            )
            match = re.search(r'version "([\d.]+)', answer.stderr)
    if match is None:
        return None
    parts = match[1].split(".")
    return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0])


def _check_reachable(url: str, server_kind: str) -> None:
    """Try the address first: Spark tries a master for a minute, Connect a server for ten.

    Through a proxy the address need not be reachable from here, so nothing is tried.
    """
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "grpc_proxy")):
        return
    problems = []
    for host, port in addresses_in(url):
        try:
            socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise SparkSetupError(
        f"no {server_kind} answers at {without_token(url)} ({'; '.join(problems)}).",
        "Check --spark_master_url (or SPARK_REMOTE), and that the server is running and reachable.",
    )


def addresses_in(url: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each of ``spark://A:1,B:2`` or ``sc://A:1/;token=…``."""
    parts = urlsplit(url)
    default = _DEFAULT_PORTS[parts.scheme]
    for address in parts.netloc.split(","):
        parsed = urlsplit(f"//{address}")
        yield parsed.hostname or "localhost", parsed.port or default


def without_token(url: str) -> str:
    """Return ``url`` without its parameters: a token may be among them."""
    return url.partition("/;")[0]


def _reason(error: BaseException) -> str:
    return line_of(text_of_error(error)) or type(error).__name__


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as Spark starts; it reads some from nowhere else."""
    previous_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def silence_pandas_opinion() -> None:
    """Silence pyspark's warning about the installed pandas: its pandas API is not used.

    It warns on the first ``mapInArrow`` of a process, so a filter around one call
    would not suffice.
    """
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
