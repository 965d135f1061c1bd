"""Processes, mounts and devices of this machine that a test starts, and that it ends."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_ENDS_WITHIN_S = 15.0


class Processes:
    """Processes that end together, the last one first.

    Args:
        logs: the folder of what they write.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a process.

        Args:
            name: of its log.
            command: with its arguments.
            environment: None: that of this process.
        """
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def check(self) -> None:
        """Check that all of them run.

        Raises:
            RuntimeError: one has ended; with the end of its log.
        """
        for name, process in self._running.items():
            if process.poll() is not None:
                log = (self._logs / f"{name}.log").read_text(errors="replace")
                raise RuntimeError(f"{name} ended with {process.returncode}: {log[-3000:]}")

    def close(self) -> None:
        """End all of them."""
        while self._running:
            _, process = self._running.popitem()
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(*command: str, content: str | None = None) -> str:
    """Run a command; return what it says on stdout.

    Raises:
        RuntimeError: it failed; with its words.
    """
    done = subprocess.run(command, input=content, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-4000:]}")
    return done.stdout


def mounts_below(folder: Path) -> list[str]:
    """Return where something is mounted in a folder, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    found = [line.split()[1] for line in lines]
    return sorted((path for path in found if path.startswith(f"{folder}/")), reverse=True)


def processes_with(text: str) -> list[str]:
    """Return the command lines of processes that contain a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if text in command:
            found.append(command)
    return found
