"""Runs a command, and ends it when the parent of this process has ended.

The parent holds the other end of this program's stdin: however the parent ends,
also by SIGKILL, the kernel closes it. The command runs in its own process group,
so that its child processes end with it.

    python -I -S guard.py GRACE_SECONDS WORDS [LAST...] COMMAND [ARGUMENT...]

LAST is a command of WORDS words, which runs after COMMAND has ended, whatever the reason. It
removes what is no child process of COMMAND, such as a container.

Imports nothing but the standard library: it runs before any environment is set up.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Have the kernel kill the command if this program itself is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status, or 127 if it cannot be run."""
    grace_s, words = float(arguments[0]), int(arguments[1])
    last, command = arguments[2 : 2 + words], arguments[2 + words :]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides, by closing stdin
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=False,  # it inherits descriptors of the parent
            preexec_fn=_restore,
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127

    has_ended = threading.Event()

    def watch() -> None:
        while os.read(0, 1):
            pass
        _kill_group(child.pid, signal.SIGTERM)
        has_ended.wait(grace_s)
        _kill_group(child.pid, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    has_ended.set()
    _kill_group(child.pid, signal.SIGKILL)  # child processes that still run
    if last:
        with contextlib.suppress(OSError):
            subprocess.run(
                last,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
    return status if status >= 0 else 128 - status


def _restore() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _die_with_parent()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
