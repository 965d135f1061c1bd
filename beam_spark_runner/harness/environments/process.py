"""SDK harnesses as processes of this machine."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, BinaryIO

from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, struct_pb2, text_format

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments.last_lines import LINE_BYTES, LastLines
from beam_spark_runner.harness.main_classes import CodedClasses, to_json

_GUARD = Path(__file__).with_name("guard.py")
_GRACE_S = 2.0
_LAST_OUTPUT_S = 1.0
_MAX_IN_A_VARIABLE = 64 << 10
"""Bytes. Linux starts no process with an environment variable of more than 128 KiB."""
_OPTIONS = "PIPELINE_OPTIONS"
_MAIN_CLASSES = "BEAM_SPARK_MAIN_CLASSES"
_TEXTS = {f"{name}{suffix}" for name in (_OPTIONS, _MAIN_CLASSES) for suffix in ("", "_FILE")}
SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET")
SDK_WORKER_MAIN = "apache_beam.runners.worker.sdk_worker_main"
_PLUGINS = "beam:option:beam_plugins:v1"
_OUR_PLUGINS = (
    "beam_spark_runner.harness.beam.chunked_steps",
    "beam_spark_runner.harness.beam.plugin.block_edges",
    "beam_spark_runner.harness.beam.plugin.main_module",
)


class HarnessProcess:
    """A command that runs until ``stop``, and never longer than this process.

    Its stdout is copied to this process's stdout. Its stderr is not, since an SDK harness also
    sends its log lines to the logging service. The last lines of both are kept for error messages.

    Threads: any. It has three threads, which read the output and reap the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_exit: Callable[[], None],
        files: Sequence[int] = (),
        last: Sequence[str] = (),
    ) -> None:
        """Start the command.

        Args:
            command: The program and its arguments.
            environment: All environment variables of the command.
            on_exit: Called once the command has ended, whatever the reason.
            files: File descriptors that the command inherits, with the same numbers.
            last: Another command that runs after the end of ``command``, and before ``on_exit``.
        """
        self._command = command
        self._tail = LastLines()
        self._on_exit = on_exit
        self._ended = threading.Event()
        self.exit_code: int | None = None
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(_GUARD), str(_GRACE_S)),
                *(str(len(last)), *last, *command),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            pass_fds=files,
        )
        self.pid = self._process.pid
        readers = [
            threading.Thread(
                target=self._read, args=streams, name="beam-harness-output", daemon=True
            )
            for streams in (
                (self._process.stdout, sys.stdout.buffer),
                (self._process.stderr, None),
            )
        ]
        for reader in readers:
            reader.start()
        threading.Thread(
            target=self._attend, args=(readers,), name="beam-harness", daemon=True
        ).start()

    @property
    def subject(self) -> str:
        """The name of the process in error messages."""
        return "the SDK harness"

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return self._tail.text

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the command has ended; return False if it has not in time."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """End the command and its child processes. Returns at once."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _attend(self, readers: list[threading.Thread]) -> None:
        exit_code = self._process.wait()
        for reader in readers:  # its child processes may hold the streams open
            reader.join(_LAST_OUTPUT_S)
        self.exit_code = exit_code
        self.stop()
        self._ended.set()
        self._on_exit()

    def _read(self, output: IO[bytes] | None, copy: BinaryIO | None) -> None:
        assert output is not None
        tail = self._tail.stream()
        with output:
            while line := output.readline(LINE_BYTES):
                tail.add(line)
                if copy is not None:
                    with contextlib.suppress(OSError, ValueError):  # our stdout has been closed
                        copy.write(line)
                        copy.flush()


def start_process(
    payload: beam_runner_api_pb2.ProcessPayload,
    worker_id: str,
    provision: beam_provision_api_pb2.ProvisionInfo,
    on_exit: Callable[[], None],
    staged: Mapping[str, str] = MappingProxyType({}),
    python: Path | None = None,
    main_classes: CodedClasses = MappingProxyType({}),
    import_path: Sequence[str] = (),
) -> HarnessProcess:
    """Start the harness of a PROCESS environment.

    Args:
        payload: The environment's payload. An empty command stands for Beam's
            ``sdk_worker_main`` in this Python. Any other command gets the arguments of Beam's
            container contract, and the environment variables that ``sdk_worker_main`` reads, so
            that it may run that in another virtual environment.
        worker_id: The id that the harness must send with every call.
        provision: Endpoints and pipeline options.
        on_exit: Called once the harness has ended.
        staged: Environment variables by which the harness finds its staged files.
        python: The interpreter of a virtual environment with the pipeline's packages, which falls
            back on all that this process can import; None: this Python.
        main_classes: The classes of the program's main module, for ``sdk_worker_main``.
        import_path: Folders for PYTHONPATH, after those that it has here.

    Raises:
        EnvironmentStartError: The command cannot be run.
    """
    texts = {_OPTIONS: json_format.MessageToJson(provision.pipeline_options)}
    variables = {
        "PYTHONFAULTHANDLER": "1",  # prints the Python stacks on a crash
        **{name: value for name, value in os.environ.items() if name not in {*SECRETS, *_TEXTS}},
        "WORKER_ID": worker_id,
        "CONTROL_API_SERVICE_DESCRIPTOR": _text(provision.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": _text(provision.logging_endpoint),
        "STATUS_API_SERVICE_DESCRIPTOR": _text(provision.status_endpoint),
        "RUNNER_CAPABILITIES": " ".join(provision.runner_capabilities),
        **staged,
    }
    if import_path:
        folders = variables.get("PYTHONPATH", "").split(os.pathsep)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, *import_path]))
    if payload.command:
        command = [
            *shlex.split(payload.command),
            f"--id={worker_id}",
            f"--logging_endpoint={provision.logging_endpoint.url}",
            f"--artifact_endpoint={provision.artifact_endpoint.url}",
            f"--provision_endpoint={provision.control_endpoint.url}",
            f"--control_endpoint={provision.control_endpoint.url}",
        ]
    else:
        command = [str(python or sys.executable), "-m", SDK_WORKER_MAIN]
        texts[_OPTIONS] = _with_our_steps(provision.pipeline_options)
        if main_classes:
            texts[_MAIN_CLASSES] = to_json(main_classes)
        if python is None:
            # Spark has extended sys.path of this process only.
            variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        else:  # packages of the virtual environment must come first
            variables.pop("PYTHONPATH", None)
    try:
        with _handed_over(texts) as (more, files):
            return HarnessProcess(command, {**variables, **more, **payload.env}, on_exit, files)
    except OSError as error:
        raise EnvironmentStartError(
            f"the SDK harness cannot be started: {command[0]}: {error.strerror}"
        ) from error


@contextlib.contextmanager
def _handed_over(texts: Mapping[str, str]) -> Iterator[tuple[Mapping[str, str], Sequence[int]]]:
    """Yield the variables by which a harness finds texts, and the files that it inherits.

    Texts that are too long for a variable are in files without a name: nothing remains however
    this process ends, and only the harness can read them.

    Args:
        texts: The texts by the names of their variables.
    """
    variables: dict[str, str] = {}
    files: list[int] = []
    with contextlib.ExitStack() as stack:
        for name, text in texts.items():
            if len(text.encode()) <= _MAX_IN_A_VARIABLE:
                variables[name] = text
                continue
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(text.encode())
            file.flush()
            file.seek(0)
            variables[f"{name}_FILE"] = f"/dev/fd/{file.fileno()}"
            files.append(file.fileno())
        yield variables, files


def _with_our_steps(options: struct_pb2.Struct) -> str:
    """Add the plugins by which ``sdk_worker_main`` imports the runner's operations."""
    values = json_format.MessageToDict(options)
    values[_PLUGINS] = [*values.get(_PLUGINS, []), *_OUR_PLUGINS]
    return json.dumps(values)


def _text(endpoint: endpoints_pb2.ApiServiceDescriptor) -> str:
    return str(text_format.MessageToString(endpoint, as_one_line=True))
