"""Runs cases in a separate process, which may crash, hang, or take too much memory."""

import ctypes
import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.fuzz.targets.base import Target

HANG_S = 5.0
"""The processor time that a case may take; it may wait for ``WAIT_S``."""
WAIT_S = 30.0
_ADDRESS_SPACE_BYTES = 2 << 30  # beyond what the process has at its begin
_MAX_KB = 64 << 10  # by which a case may raise the peak of the process's memory
_STACK_SIGNAL = signal.SIGUSR1


class Finding(NamedTuple):
    """A case that ended as no case may.

    Attributes:
        target: The name of the target.
        number: The number of the case.
        kind: ``error``, ``crash``, ``hang`` or ``memory``.
        what: The error, or the signal.
        where: The innermost line of the runner's code.
        case: The bytes of the case.
    """

    target: str
    number: int
    kind: str
    what: str
    where: str
    case: bytes

    @property
    def signature(self) -> tuple[str, ...]:
        """Equal for findings that have the same cause, as far as one can tell."""
        return self.target, self.kind, self.what.partition(":")[0], self.where


class Part(NamedTuple):
    """What has become of some cases of a target.

    Attributes:
        ended: The number of cases that have ended.
        outcomes: What became of them.
        findings: See ``Finding``.
        slowest_s: The longest time that one took.
        slowest: The number of that case.
        peak_kb: The most memory of the process.
        start_kb: The memory of the process at its begin.
    """

    ended: int
    outcomes: Counter[str]
    findings: list[Finding]
    slowest_s: float = 0.0
    slowest: int = -1
    peak_kb: int = 0
    start_kb: int = 0


def case_of(target: Target, seed: int, number: int) -> bytes:
    """Return a case, which is always the same."""
    return target.case(random.Random(f"{seed}/{target.name}/{number}"))


class Child:
    """A forked process that runs cases one after the other.

    Args:
        target: The target.
        numbers: The numbers of the cases.
        case: Returns the case of a number.
    """

    def __init__(
        self, target: Target, numbers: Sequence[int], case: Callable[[int], bytes]
    ) -> None:
        self._target, self._numbers, self._case = target, numbers, case
        # Each is written at once, so that this process never reads half of it.
        shared = mmap.mmap(-1, mmap.PAGESIZE)
        self._number = ctypes.c_int64.from_buffer(shared, 0)
        self._began_s = ctypes.c_double.from_buffer(shared, 8)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115
        self._folder = tempfile.TemporaryDirectory()
        self._hung: int | None = None
        self._set(-1)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run_and_exit()

    def _set(self, number: int) -> None:
        self._began_s.value = time.monotonic()
        self._number.value = number

    @property
    def running(self) -> tuple[int, float]:
        """The number of the running case (-1: none), and for how many seconds it has run."""
        number = self._number.value
        return number, time.monotonic() - self._began_s.value

    def _run_and_exit(self) -> None:
        status = 1
        try:
            _prepare(self._stacks)
            self._run()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)

    def _run(self) -> None:
        silence = open(os.devnull, "w")  # noqa: SIM115
        os.dup2(silence.fileno(), 1)
        self._errors = os.dup(2)
        os.dup2(silence.fileno(), 2)
        tempfile.tempdir = self._folder.name  # which the parent removes, whatever becomes of this
        self._target.begin()
        start_kb = peak_kb = _peak_kb()
        for number in self._numbers:
            case = self._case(number)
            self._set(number)
            began_s = time.perf_counter()
            try:
                outcome = self._target.outcome(case)
            except BaseException as error:
                outcome = "DEFECT"
                self._report(number, "error", _said(error), _innermost(error))
            lasted_s = time.perf_counter() - began_s
            self._set(-1)
            grown_kb, peak_kb = (now := _peak_kb()) - peak_kb, now
            takes_much = grown_kb > _MAX_KB + 20 * (len(case) >> 10)
            if takes_much:
                self._report(number, "memory", f"{grown_kb >> 10} MB", "")
            self._write({"ended": [number, outcome, lasted_s, start_kb, peak_kb]})
            if takes_much:  # another process shows what later cases take
                return
        if peak_kb > 2 * start_kb + _MAX_KB:
            self._report(number, "memory", f"{peak_kb >> 10} MB after many cases", "")

    def _report(self, number: int, kind: str, what: str, where: str) -> None:
        self._write({"finding": [number, kind, what, where]})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._output.fileno(), json.dumps(line).encode() + b"\n")

    def poll(self) -> Part | None:
        """Return what has become of the cases; None: the process runs.

        It is killed if a case takes too long.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            self._watch()
            return None
        return self._part(status)

    def _watch(self) -> None:
        number, lasted_s = self.running
        if number < 0 or lasted_s < HANG_S:
            return
        if lasted_s < WAIT_S and _seconds_on_cpu(self.pid) - self._cpu_before(number) < HANG_S:
            return
        self._hung = number
        os.kill(self.pid, _STACK_SIGNAL)
        time.sleep(0.3)
        os.kill(self.pid, signal.SIGKILL)

    _looked_at: tuple[int, float] = (-1, 0.0)

    def _cpu_before(self, number: int) -> float:
        """Return the processor time when the case was first seen to be slow."""
        if self._looked_at[0] != number:
            self._looked_at = number, _seconds_on_cpu(self.pid) - HANG_S / 2
        return self._looked_at[1]

    def _part(self, status: int) -> Part:
        self._folder.cleanup()
        self._output.seek(0)
        lines = [json.loads(line) for line in self._output.read().splitlines()]
        outcomes: Counter[str] = Counter()
        findings: list[Finding] = []
        part = Part(0, outcomes, findings)
        for line in lines:
            if "finding" in line:
                number, kind, what, where = line["finding"]
                case = self._case(number)
                findings.append(Finding(self._target.name, number, kind, what, where, case))
                continue
            number, outcome, lasted_s, start_kb, peak_kb = line["ended"]
            outcomes[outcome] += 1
            part = part._replace(ended=part.ended + 1, start_kb=start_kb, peak_kb=peak_kb)
            if lasted_s > part.slowest_s:
                part = part._replace(slowest_s=lasted_s, slowest=number)
        if status == 0:
            return part
        is_hung = self._hung is not None
        number = self.running[0] if self._hung is None else self._hung
        if number >= 0:
            what = "" if is_hung else signal.Signals(os.WTERMSIG(status)).name
            kind = "hang" if is_hung else "crash"
            where = self._where()
            findings.append(
                Finding(self._target.name, number, kind, what, where, self._case(number))
            )
            outcomes["DEFECT"] += 1
            ended = self._numbers.index(number) + 1
        else:
            raise RuntimeError(f"a process of {self._target.name} ended with {status}")
        return part._replace(ended=ended)

    def _where(self) -> str:
        self._stacks.seek(0)
        lines = self._stacks.read().decode(errors="replace").splitlines()
        found = [line.strip() for line in lines if line.strip().startswith("File ")]
        ours = [line for line in found if "/beam_spark_runner/" in line]
        return _short(next(iter(ours or found), "unknown"))


def _prepare(stacks: Any) -> None:
    """Prepare a forked process: limits, and stacks on signals."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with its parent
    faulthandler.enable(stacks)
    faulthandler.register(_STACK_SIGNAL, stacks, all_threads=True)
    limit = psutil.Process().memory_info().vms + _ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _seconds_on_cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _said(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"[:300]


def _innermost(error: BaseException) -> str:
    """Return the innermost line of the runner's own code that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    while error.__cause__ is not None:
        error = error.__cause__
        frames += traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "/beam_spark_runner/" in each.filename]
    found = (ours or list(frames))[-1:]
    return "".join(f"{_short(each.filename)}:{each.lineno} {each.name}" for each in found)


def _short(path: str) -> str:
    return path.replace(f"{Path(__file__).parents[2]}/", "")
