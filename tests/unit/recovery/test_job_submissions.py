"""Programs that submit jobs in one folder at the same time, and sleep at any moment."""

import contextlib
from collections.abc import Iterable
from random import Random

import pytest

from beam_spark_runner.recovery.job_submissions import (
    BEGINS,
    BegunJob,
    begun_job,
    decision_name,
    has_submissions,
    is_submitted,
    remove_submission,
    submission_name,
    submit,
    withdraw_others,
)
from beam_spark_runner.recovery.manifest import CorruptManifestError
from tests.unit.recovery.files import Files
from tests.unit.simulation.steps import Steps, pause

FIRST, SECOND = "1" * 32, "2" * 32


class Shared(Files):
    """Files of programs that pause before each question. A listing is no instant.

    Attributes:
        running: The jobs that have begun and are not over.
        begun: All that have.
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self.running: set[str] = set()
        self.begun: list[str] = []

    def names(self) -> list[str]:
        pause()
        first = set(self.files)
        pause()
        last = set(self.files)
        doubtful = [name for name in sorted(first ^ last) if self._random.random() < 0.5]
        return sorted(first & last) + doubtful

    def read(self, name: str) -> bytes:
        pause()
        try:
            return super().read(name)
        except KeyError:
            raise FileNotFoundError(name) from None

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        pause()
        is_new = super().create(name, data, after)
        job = name.partition(".")[0]
        if is_new and data == BEGINS and submission_name(job) in self.files:
            assert not self.running, "two jobs of one folder run at the same time"
            self.running.add(job)
            self.begun.append(job)
        return is_new

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            pause()
            job = name.partition(".")[0]
            assert job not in self.running, "something is removed of a job that runs"
            super().delete([name])


def program(files: Shared, random: Random) -> None:
    """Run what has begun in the folder, or a job of its own, to its end.

    Raises:
        FileNotFoundError: Another program has removed a file that this one has seen.
    """
    begun = begun_job(files)
    while begun is None:
        own = f"{random.getrandbits(128):032x}"
        begun = submit(files, own, own.encode())
    assert files.read(begun.submission) == begun.job.encode()
    assert begun.job in files.begun
    pause()
    files.running.discard(begun.job)  # it is done, of which another program may know earlier
    withdraw_others(files, begun.job)
    remove_submission(files, begun.job)


def repeated(files: Shared, random: Random) -> None:
    """Run a program, which tries again what has failed."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            program(files, random)
            return


@pytest.mark.parametrize("seed", range(150))
def test_one_job_begins_at_a_time(seed: int) -> None:
    random = Random(seed)
    files = Shared(random)
    going = [Steps(lambda: repeated(files, random)) for _ in range(random.choice((2, 3, 5)))]
    sleeping: dict[Steps, int] = {}
    turn = 0
    while going:
        turn += 1
        assert turn < 20_000, "no program begins"
        awake = [each for each in going if sleeping.get(each, 0) <= turn] or going
        each = random.choice(awake)
        if random.random() < 0.02:
            sleeping[each] = turn + random.choice((30, 300))
        if random.random() < 0.003:
            each.kill()
        if not each.has_ended:
            each.go_on()
        going = [each for each in going if not each.has_ended]
    last = Steps(lambda: repeated(files, random))  # programs that were killed have left files
    while not last.has_ended:
        last.go_on()
    assert not has_submissions(files.files)


def test_a_submission_without_a_decision_is_withdrawn() -> None:
    """Its program has died, or submits its job again."""
    files = Files()
    files.create(submission_name(FIRST), b"")
    assert begun_job(files) is None
    assert submit(files, SECOND, b"") == BegunJob(SECOND, submission_name(SECOND))
    assert sorted(files.names()) == sorted([submission_name(SECOND), decision_name(SECOND)])


def test_a_job_that_has_begun_is_continued() -> None:
    files = Files()
    first = submit(files, FIRST, b"")
    assert first == begun_job(files) == submit(files, SECOND, b"")
    assert not is_submitted(files, SECOND)


def test_a_program_that_decides_late_notices_that_it_was_withdrawn() -> None:
    class Late(Files):
        def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
            if name == decision_name(FIRST) and data == BEGINS:
                others = Files()
                others.files = self.files
                assert submit(others, SECOND, b"") is not None
                assert name not in self.files
            return super().create(name, data, after)

    files = Late()
    assert submit(files, FIRST, b"") is None
    assert begun_job(files) == BegunJob(SECOND, submission_name(SECOND))
    assert sorted(files.names()) == sorted([submission_name(SECOND), decision_name(SECOND)])


def test_a_damaged_decision_is_an_error() -> None:
    files = Files()
    files.create(submission_name(FIRST), b"")
    files.create(decision_name(FIRST), b"begin")
    with pytest.raises(CorruptManifestError, match="decision"):
        begun_job(files)
