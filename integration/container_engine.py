"""Programs that run containers on this machine, as tests use them: docker and podman."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_spark_runner.harness.environments.docker import OWNER_LABEL

DEBIAN = "bookworm"
"""Of images that are made here; its Python is 3.11."""
_SHARING = """#!/bin/sh
# {engine}, whose containers have a folder of this machine by the same path.
if [ "$1" = run ]; then
    shift
    exec {engine} run --volume={folder}:{folder} "$@"
fi
exec {engine} "$@"
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that takes the arguments of ``docker``."""

    program: str

    def why_not(self, *programs: str) -> str:
        """Return why no containers can be had here; empty: they can.

        Args:
            programs: further programs that are needed.
        """
        for program in (self.program, *programs):
            if shutil.which(program) is None:
                return f"needs {program}"
        if "debootstrap" in programs and (os.geteuid() or sys.version_info[:2] != (3, 11)):
            return f"debootstrap needs root, and Debian {DEBIAN} has Python 3.11"
        asked = self._run("ps")
        return f"{self.program} does not work: {asked.stderr.strip()}" if asked.returncode else ""

    def ask(self, *arguments: str) -> str:
        """Run a command; return what it says on stdout.

        Raises:
            RuntimeError: it failed; with its words.
        """
        done = self._run(*arguments)
        if done.returncode:
            raise RuntimeError(f"{self.program} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        """Whether an image is on this machine."""
        return self._run("image", "inspect", image).returncode == 0

    def containers(self) -> set[str]:
        """Return the ids of all containers of this package, whether they run or not."""
        return set(self.ask("ps", "--all", "--quiet", f"--filter=label={OWNER_LABEL}").split())

    def inspect(self, container: str) -> dict[str, Any]:
        """Return what the engine knows of a container."""
        found: dict[str, Any] = json.loads(self.ask("inspect", container))[0]
        return found

    def file_is_in(self, container: str, path: str) -> bool:
        """Whether a container runs and has a file. Its image must have a ``test``."""
        return self._run("exec", container, "test", "-e", path).returncode == 0

    def sharing(self, folder: Path, program: Path) -> str:
        """Write a program for ``--docker_executable``: containers have a folder of this machine.

        Args:
            folder: in containers it has the same path.
            program: where it is written.

        Returns:
            its path.
        """
        engine = shlex.quote(shutil.which(self.program) or self.program)
        program.write_text(_SHARING.format(engine=engine, folder=shlex.quote(str(folder))))
        program.chmod(0o755)
        return str(program)

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


DOCKER = Engine("docker")
PODMAN = Engine("podman")
