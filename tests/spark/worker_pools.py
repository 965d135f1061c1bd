"""Worker pools of Beam's own, for user code that runs where somebody else wants it (EXTERNAL)."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

WORKER_POOL_MAIN = "apache_beam.runners.worker.worker_pool_main"


class RunningPool(NamedTuple):
    """A pool, and how to name it."""

    process: psutil.Process
    flags: tuple[str, ...]


@contextlib.contextmanager
def worker_pool(folder: Path) -> Iterator[RunningPool]:
    """Run a pool. Its harnesses write to the file ``stderr`` of a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = Path(__file__).parent
    modules = os.pathsep.join([str(here), str(here.parents[1])])  # that the tests' functions name
    # It starts its harnesses by the word "python".
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with open(folder / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER_POOL_MAIN, f"--service_port={port}"],
            env={**os.environ, "PATH": path, "PYTHONPATH": modules},
            stderr=stderr,
        )
    try:
        flags = ("--environment_type=EXTERNAL", f"--environment_config=127.0.0.1:{port}")
        yield RunningPool(psutil.Process(process.pid), flags)
    finally:
        process.terminate()
        process.wait(20)
