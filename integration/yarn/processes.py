"""Processes of containers, of which YARN gives no ids."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from integration.yarn.patience import wait_until

EXECUTOR = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"
"""Of an application in cluster mode: YARN calls it the application's master."""


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    command: tuple[str, ...]
    folder: str  # its working folder


def jvms(main_class: str, application: str) -> list[int]:
    """Return the ids of an application's JVMs with a main class."""
    return [
        each.pid
        for each in _all()
        if each.command[0].endswith("/java")
        and main_class in each.command
        and f"/{application}/" in " ".join([each.folder, *each.command])
    ]


def processes_in(folder: Path) -> list[int]:
    """Return the ids of the processes that work in a folder, or have it in their commands."""
    return [
        each.pid
        for each in _all()
        if each.pid != os.getpid()
        and (Path(each.folder).is_relative_to(folder) or f"{folder}/" in " ".join(each.command))
    ]


def python_in(folder: Path, application: str) -> list[int]:
    """Return the ids of Python processes in an application's containers, which are in a folder."""
    return [
        each.pid
        for each in _all()
        if "pyspark.daemon" in each.command
        and each.folder.startswith(f"{folder}/")
        and f"/{application}/" in each.folder
    ]


def kill(pid: int) -> None:
    """End a process as the kernel does when memory is short."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def end_processes(folder: Path) -> None:
    """End what is left of containers, and wait until nothing is."""

    def is_gone() -> bool:
        left = processes_in(folder)
        for pid in left:
            kill(pid)
        return not left

    wait_until(is_gone, "the end of containers")


def _all() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # It may end meanwhile, or belong to another user.
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                command = tuple(os.fsdecode(word) for word in words if word)
                if command:
                    yield Process(int(entry.name), command, os.readlink(entry / "cwd"))
