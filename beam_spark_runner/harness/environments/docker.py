"""SDK harnesses in containers of this machine.

A container is a child of the Docker daemon, not of this process. So it is ended in three ways. The
``docker run`` in the foreground runs under the guard of all SDK harnesses, which finally removes
the container. If the guard is killed, the SDK harness exits when its streams to this process end,
and the daemon then removes the container (``--rm``). Finally, a process that starts its first
container removes those whose owner has ended.
"""

import contextlib
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from apache_beam.portability.api import beam_provision_api_pb2, beam_runner_api_pb2
from typing_extensions import override

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments.process import SECRETS, HarnessProcess

OWNER_LABEL = "beam-spark-runner.owner"
"""The label with the process that has started the container: ``_Owner``."""
JOB_LABEL = "beam-spark-runner.job"
"""The label with the first job of the container; --environment_cache_millis allows others."""

_ANSWERS_WITHIN_S = 60.0
_PULLS_WITHIN_S = 600.0  # as Beam's Java runners allow
_GCLOUD_INSIDE = "/root/.config/gcloud"
_DAEMON_FAILED = 125  # exit status of docker and podman if no container was created


class ContainerProcess(HarnessProcess):
    """The ``docker run`` that runs a container in the foreground."""

    def __init__(
        self,
        image: str,
        executable: str,
        command: Sequence[str],
        last: Sequence[str],
        on_exit: Callable[[], None],
    ) -> None:
        self._image = image
        self._executable = executable
        super().__init__(command, _variables(), on_exit, last=last)

    @property
    @override
    def subject(self) -> str:
        """The name of the process in error messages."""
        if self.exit_code == _DAEMON_FAILED:
            return f"{self._executable}, which was to run the container image {self._image},"
        return f"the container of {self._image}"


def start_container(
    payload: beam_runner_api_pb2.DockerPayload,
    worker_id: str,
    provision: beam_provision_api_pb2.ProvisionInfo,
    on_exit: Callable[[], None],
    *,
    job_id: str,
    executable: str,
) -> ContainerProcess:
    """Start the harness of a DOCKER environment, whose image is pulled unless it is present.

    The container shares this machine's network, where the Fn API is served, and its gcloud
    configuration, if there is one.

    Args:
        payload: The environment's payload, with the image.
        worker_id: The id that the harness must send with every call.
        provision: Endpoints and pipeline options, which the boot program of the image requests.
        on_exit: Called once the container has ended.
        job_id: The job, as a label of the container.
        executable: docker, or a program that takes the same arguments.

    Raises:
        EnvironmentStartError: The program or the image is missing; with the daemon's message.

    Source: Java ``DockerEnvironmentFactory``.
    """
    image = payload.container_image
    if not image or image.startswith("-"):
        raise EnvironmentStartError(f"{image!r} is not the name of a container image")
    _sweep_once(executable)
    _get_image(executable, image)
    name = f"beam-{secrets.token_hex(8)}"
    command = [
        *(executable, "run", "--rm", "--pull=never", f"--name={name}", "--network=host"),
        *(owner_label(), f"--label={JOB_LABEL}={job_id}"),
        *_mounts(),
        image,
        *(f"--id={worker_id}", f"--provision_endpoint={provision.control_endpoint.url}"),
    ]
    try:
        return ContainerProcess(
            image, executable, command, (executable, "rm", "--force", name), on_exit
        )
    except OSError as error:
        raise EnvironmentStartError(
            f"the container of {image} cannot be started: {error.strerror}"
        ) from error


def owner_label() -> str:
    """Return the label argument by which a container is removed after the end of this process."""
    return f"--label={OWNER_LABEL}={_Owner.of(os.getpid())}"


def _mounts() -> Iterator[str]:
    """Yield the mounts of a container; see Java's ``gcsCredentialArgs``."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or str(Path("~/.config/gcloud").expanduser())
    if os.path.isdir(folder):
        yield "--mount"
        yield f"type=bind,src={folder},dst={_GCLOUD_INSIDE}"


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _get_image(executable: str, image: str) -> None:
    """Have the daemon pull an image, unless it is present.

    Raises:
        EnvironmentStartError: The image cannot be pulled.
    """
    if ask(executable, "image", "inspect", image).returncode == 0:
        return
    pull = HarnessProcess([executable, "pull", "--quiet", image], _variables(), lambda: None)
    if not pull.wait(_PULLS_WITHIN_S):
        pull.stop()
        raise EnvironmentStartError(
            f"{executable} has not pulled the image {image} within {_PULLS_WITHIN_S:g} s", pull.tail
        )
    if pull.exit_code:
        raise EnvironmentStartError(
            f"{executable} has no container image {image} on this machine, and cannot pull it",
            pull.tail,
        )


def ask(executable: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a short command of the container engine.

    Raises:
        EnvironmentStartError: The program cannot be run, or does not end in time.
    """
    try:
        return subprocess.run(
            [executable, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=_variables(),
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentStartError(
            f"{executable} has not answered within {_ANSWERS_WITHIN_S:g} s"
        ) from error
    except OSError as error:
        raise EnvironmentStartError(
            f"this executor cannot run {executable}, which starts containers "
            f"(--docker_executable): {error.strerror}"
        ) from error


class _Owner(NamedTuple):
    """The unique identity of a process; a process id alone is reused."""

    boot: str  # id of the machine's boot
    namespace: str  # id of the process's pid namespace
    pid: int
    start_ticks: int  # start time, in clock ticks after the boot

    @override
    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.start_ticks}"

    @classmethod
    def of(cls, pid: int) -> "_Owner | None":
        """Return the identity of the process with this id; None if there is none."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
            # The name of the program, in parentheses, may have blanks in it.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return cls(boot, namespace, pid, int(fields[19]))

    @classmethod
    def parse(cls, label: str) -> "_Owner | None":
        with contextlib.suppress(ValueError):
            boot, namespace, pid, start_ticks = label.split("/")
            return cls(boot, namespace, int(pid), int(start_ticks))
        return None


_swept: set[str] = set()
_SWEEPING = threading.Lock()


def _sweep_once(executable: str) -> None:
    """Remove containers of killed processes, before this process starts its first container."""
    with _SWEEPING:
        if executable not in _swept:
            sweep(executable)
            _swept.add(executable)


def sweep(executable: str) -> list[str]:
    """Remove containers whose owner ran on this machine and has ended; return their ids.

    Raises:
        EnvironmentStartError: The program cannot be run.
    """
    listed = ask(executable, "ps", "--all", "--quiet", f"--filter=label={OWNER_LABEL}")
    ids = listed.stdout.split()  # none if the daemon does not answer: pulling reports the error
    if not ids:
        return []
    # In templates of "ps", podman has no labels. A container that has ended since is missing.
    template = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER_LABEL}"}}}}'
    inspection = ask(executable, "inspect", "--type=container", "--format", template, *ids)
    this_process = _Owner.of(os.getpid())
    orphans = []
    for line in inspection.stdout.splitlines():
        id_, _, label = line.partition(" ")
        owner = _Owner.parse(label)
        if owner is None or this_process is None:
            continue
        is_from_here = owner[:2] == this_process[:2]
        if is_from_here and _Owner.of(owner.pid) != owner:
            orphans.append(id_)
    if orphans:
        ask(executable, "rm", "--force", *orphans)
    return orphans
