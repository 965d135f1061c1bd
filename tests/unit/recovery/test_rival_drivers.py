"""Drivers that pause, die and lose answers between any two looks at the storage."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beam_spark_runner.recovery.batch_manifest import BatchManifest, commits
from beam_spark_runner.recovery.commit import claim, commit, newest, superseded
from beam_spark_runner.recovery.form import ManifestForm
from beam_spark_runner.recovery.manifest import FencedError, Manifest, epochs_of, fence_in
from tests.examples import examples

KEEP = 1  # the least: who wakes up late finds the most gone
T = TypeVar("T")


class Epochs:
    """The manifests of a streaming pipeline.

    Attributes:
        form: Their form.
        first: What the pipeline begins with.
    """

    form: ManifestForm[Any] = epochs_of("main")
    first: Any = Manifest(
        epoch=0, fence=0, lineage="main", parent=None, partitions=1, key_groups=128
    )

    @staticmethod
    def after(last: Any, fence: int, unique: int) -> Any:
        """Return the next manifest of a driver. An epoch that runs again makes another one."""
        return dataclasses.replace(
            last, epoch=last.epoch + 1, parent=last.epoch, fence=fence, clock_us=unique
        )


class Commits(Epochs):
    """The manifests of a bounded pipeline."""

    form = commits()
    first = BatchManifest(commit=0, fence=0, plan="of this pipeline")

    @staticmethod
    def after(last: Any, fence: int, unique: int) -> Any:
        """Return the next manifest of a driver."""
        done = {**last.done, last.commit: (b"%d" % unique,)}
        return dataclasses.replace(last, commit=last.commit + 1, fence=fence, done=done)


class LostAnswerError(Exception):
    """A file was created, but the driver is not told."""


class GoneError(Exception):
    """There is no file of that name."""


class PausedError(Exception):
    """The driver has not come further than this."""


class Answers:
    """Storage for one driver, which gets one answer at a time.

    What a driver does follows from its answers alone. So it takes a step by running once more
    from its start, with all earlier answers as they were, and a new one.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._answers: list[object] = []
        self._given = 0
        self._is_used_up = False
        self._loss = ""

    def restart(self, loss: str) -> None:
        """Begin another run. ``loss``: what becomes of a new answer to ``create``, if anything."""
        self._given, self._is_used_up, self._loss = 0, False, loss

    def names(self) -> Sequence[str]:
        return self._answer(lambda: tuple(self._files))

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            if name not in self._files:
                raise GoneError(name)
            return self._files[name]

        return self._answer(read)

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        def create() -> bool:
            if name in self._files:
                return False
            self._files[name] = data
            if self._loss == "error":
                raise LostAnswerError
            return self._loss != "false"

        return self._answer(create)

    def delete(self, name: str) -> None:
        self._answer(lambda: self._files.pop(name, None))

    def _answer(self, ask: Callable[[], T]) -> T:
        if self._given == len(self._answers):
            if self._is_used_up:
                raise PausedError
            self._is_used_up = True
            try:
                self._answers.append(ask())
            except (GoneError, LostAnswerError) as error:
                self._answers.append(error)
        answer = self._answers[self._given]
        self._given += 1
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]  # it is that of the same question


class Driver:
    """Does with a storage what a pipeline does, and cleans up."""

    def __init__(self, number: int, files: dict[str, bytes], kind: type[Epochs]) -> None:
        self.fence = 0
        self.late = 0  # how many of its commits came after a higher fence had been claimed
        self.won: list[Any] = []  # its own ones
        self.known: list[Any] = []  # those and adopted ones, and what it began with
        self._number, self._answers = number, Answers(files)
        self._kind = kind

    def takes_a_step(self, loss: str = "") -> bool:
        """Whether it continues after one more answer."""
        self.won, self.known = [], []
        self._answers.restart(loss)
        try:
            self._run()
        except PausedError:
            return True
        except (FencedError, GoneError):
            return False
        raise AssertionError("it has ended by itself")

    def _run(self) -> None:
        self.fence = self._until_answered(lambda _: claim(self._answers))
        self.known.extend(newest(self._answers, self._kind.form, fence=self.fence))
        last = self.known[-1] if self.known else self._kind.first
        while True:
            last = self._until_answered(self._commits_after(last))
            self.known.append(last)
            for name in superseded(self._answers, self._kind.form, KEEP, self.fence):
                self._answers.delete(name)

    def _commits_after(self, last: Any) -> Callable[[int], Any]:
        def attempt(tries: int) -> Any:
            mine = self._kind.after(last, self.fence, 100 * self._number + tries)
            committed = commit(self._answers, self._kind.form, mine)
            if committed == mine:
                self.won.append(mine)
            return committed

        return attempt

    def _until_answered(self, attempt: Callable[[int], T]) -> T:
        tries = 0
        while True:
            try:
                return attempt(tries)
            except LostAnswerError:
                tries += 1


class Rivals(RuleBasedStateMachine):
    """Any number of drivers, each of which sleeps for as long as it likes."""

    kind = Epochs

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.drivers: list[Driver] = []
        self.started = 0
        self.fences: dict[int, Driver] = {}
        self.chain: list[Any] = []  # what was committed, from number 1

    def start(self) -> Driver:
        """Return a new driver."""
        self.started += 1
        self.drivers.append(Driver(self.started, self.files, self.kind))
        return self.drivers[-1]

    @rule(which=st.integers(0, 3), steps=st.integers(1, 6))
    def takes_steps(self, which: int, steps: int) -> None:
        driver = self.pick(which)
        for _ in range(steps):
            if not self.step(driver):
                self.drivers.remove(driver)
                return

    @rule(which=st.integers(0, 3), epochs=st.integers(1, 4))
    def runs_epochs(self, which: int, epochs: int) -> None:
        self.run(self.pick(which), epochs)

    @rule(epochs=st.integers(0, 3))
    def is_taken_for_dead(self, epochs: int) -> None:
        driver = self.start()
        while not driver.fence:
            self.step(driver)
        self.run(driver, epochs)

    def pick(self, which: int) -> Driver:
        """Return one of those that are alive; a new one if none has its number."""
        return self.drivers[which] if which < len(self.drivers) else self.start()

    def run(self, driver: Driver, epochs: int) -> None:
        """Let a driver commit so many epochs, unless it stops."""
        goal = len(driver.won) + epochs
        while len(driver.won) < goal:
            if not self.step(driver):
                self.drivers.remove(driver)
                return

    @rule(which=st.integers(0, 3), loss=st.sampled_from(["error", "false"]))
    def loses_an_answer(self, which: int, loss: str) -> None:
        driver = self.pick(which)
        if not self.step(driver, loss):
            self.drivers.remove(driver)

    @rule(which=st.integers(0, 3))
    def dies(self, which: int) -> None:
        self.drivers.remove(self.pick(which))

    def step(self, driver: Driver, loss: str = "") -> bool:
        """Let a driver take a step, and check what it has made of it."""
        won = len(driver.won)
        goes_on = driver.takes_a_step(loss)
        self.look()
        if driver.fence:
            assert self.fences.setdefault(driver.fence, driver) is driver, "one fence, two drivers"
        for each in driver.known:
            assert each == self.chain[self.kind.form.number_of(each) - 1], (
                "two drivers know different pasts"
            )
        if len(driver.won) > won:
            assert self.chain[-1] == driver.won[-1], "a fenced driver has committed"
            driver.late += max(self.claimed()) > driver.fence
            assert driver.late <= 1, "only the commit that was under way may be won"
        if not goes_on:
            assert max(self.claimed()) > driver.fence, "the driver with the highest fence stopped"
        return goes_on

    def look(self) -> None:
        """Learn which epochs were committed."""
        for number, manifest in sorted(self.manifests().items()):
            if number > len(self.chain):
                assert number == len(self.chain) + 1
                assert self.kind.form.number_of(manifest) == number
                assert not self.chain or manifest.fence >= self.chain[-1].fence
                self.chain.append(manifest)

    @invariant()
    def the_newest_manifests_are_there_and_never_change(self) -> None:
        there = self.manifests()
        for manifest in self.chain[-KEEP:]:
            assert there[self.kind.form.number_of(manifest)] == manifest

    def teardown(self) -> None:
        """A driver that starts now continues, whatever the others have left."""
        driver, before = Driver(self.started + 1, self.files, self.kind), len(self.chain)
        while len(driver.won) < 2:
            assert self.step(driver)
        assert len(self.chain) == before + 2

    def manifests(self) -> dict[int, Any]:
        """Return what is there, by number."""
        form = self.kind.form
        numbers = {name: form.number_in(name) for name in self.files}
        return {
            number: form.decode(self.files[name], name)
            for name, number in numbers.items()
            if number is not None
        }

    def claimed(self) -> list[int]:
        """Return all fences."""
        return [fence for name in self.files if (fence := fence_in(name)) is not None]


class BatchRivals(Rivals):
    """Drivers of a bounded pipeline."""

    kind = Commits


TestRivals, TestBatchRivals = Rivals.TestCase, BatchRivals.TestCase
TestRivals.settings = TestBatchRivals.settings = settings(
    max_examples=examples(80), stateful_step_count=25, deadline=None
)
