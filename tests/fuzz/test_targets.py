"""Strangers send some thousand messages, and each ends by a named error."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import child, coded, corpus
from tests.fuzz.corpus import Recorded
from tests.fuzz.driver import Tally, fuzz, smallest
from tests.fuzz.targets.base import Target

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "5000"))
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_what_strangers_send_ends_by_named_errors() -> None:
    """In a separate process, since a process with threads must not fork."""
    command = [sys.executable, "-m", "tests.fuzz", f"--messages={MESSAGES}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]


class Faulty(Target):
    """Does what a case says; ``A`` anywhere in a case is enough for its errors."""

    name = "faulty"
    named = (LookupError,)

    def case(self, random_: random.Random) -> bytes:
        return random_.choice((b"fine", b"KeyError"))

    def run(self, case: bytes) -> object:
        if b"crash" in case:
            os.kill(os.getpid(), signal.SIGSEGV)
        if b"hang" in case:
            time.sleep(1_000)
        if b"memory" in case:
            return len(bytearray(100 << 20))
        if b"KeyError" in case:
            raise KeyError
        if b"A" in case:
            raise ZeroDivisionError
        return None


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The cases of the target, by their numbers."""
    found: list[bytes] = []
    monkeypatch.setattr("tests.fuzz.driver.case_of", lambda target, seed, number: found[number])
    monkeypatch.setattr(child, "HANG_S", 0.3)
    monkeypatch.setattr(child, "WAIT_S", 3.0)
    return found


def kinds(tally: Tally) -> list[tuple[str, int]]:
    return sorted((each.kind, each.number) for each in tally.findings.values())


def test_defects_are_found_and_the_run_continues(cases: list[bytes]) -> None:
    cases += [b"fine", b"crash", b"KeyError", b"hang", b"xA", b"memory", b"A", b"fine"]
    tally = fuzz([Faulty()], len(cases))["faulty"]
    assert kinds(tally) == [("crash", 1), ("error", 4), ("hang", 3), ("memory", 5)]
    assert tally.ended == len(cases)
    assert tally.outcomes["KeyError"] == 1
    (error,) = (each for each in tally.findings.values() if each.kind == "error")
    assert error.what.startswith("builtins.ZeroDivisionError")
    assert tally.times[error.signature] == 2


def test_a_target_that_hangs_again_and_again_is_given_up(
    cases: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "WAIT_S", 0.3)
    cases += [b"hang"] * 6
    tally = fuzz([Faulty()], len(cases), processes=1)["faulty"]
    assert tally.is_given_up
    assert tally.ended == 3


@pytest.mark.parametrize(("case", "least"), [(b"what crashes", b"crash"), (b"some A's", b"A")])
def test_a_case_is_made_smaller(cases: list[bytes], case: bytes, least: bytes) -> None:
    cases.append(case)
    (finding,) = fuzz([Faulty()], 1)["faulty"].findings.values()
    assert smallest(Faulty(), finding) == least


def test_messages_are_read_as_they_were_written(tmp_path: Path) -> None:
    messages = [Recorded("Elements", -1, b""), Recorded("x" * 200, 300, b"\xff" * 70_000)]
    corpus.write("sdk", messages, tmp_path)
    assert corpus.read("sdk", tmp_path) == messages
    assert corpus.sdks(tmp_path) == ["sdk"]


def test_a_seed_decides_what_bytes_become() -> None:
    def changed(seed: int) -> list[bytes]:
        random_ = random.Random(seed)
        return [coded.mutated(b"\3abc" * 9, random_, [b"other"]) for _ in range(50)]

    assert changed(1) == changed(1) != changed(2)
    assert len(set(changed(1))) > 40
