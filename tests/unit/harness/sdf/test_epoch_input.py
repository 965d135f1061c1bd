"""Restrictions that are stored from epoch to epoch, with a scripted SDK and clock."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.sdf import epoch_input
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions, Truncate
from beam_spark_runner.state.store import StoredState
from tests.unit.harness.sdf.residual_protos import INPUT_CODER, restriction
from tests.unit.harness.sdf.scripted_sdk import Process, ScriptedSdk, three_times
from tests.unit.state.sorted_records import SortedRecords, count_values

BUDGET_US = 500_000


class Epochs(ScriptedSdk):
    """Each step of the script takes ``step_us``."""

    def __init__(self, process: Process, step_us: int = 0) -> None:
        def timed(element: str, position: int) -> list[tuple[str, int, float, float]]:
            self.spent_us += step_us
            return process(element, position)

        super().__init__(timed)
        self.records = SortedRecords()
        self.spent_us = 0

    def vary(self, varies: str) -> None:
        """Have the state of the watermark estimator, or the size, differ each time."""
        numbers = itertools.count(1)
        if varies == "state":
            self.estimates = lambda: (next(numbers), 1.0)
        elif varies == "size":
            self.estimates = lambda: (0, float(next(numbers)))

    @property
    def store(self) -> StoredState:
        return StoredState(self.records, 1, count_values)

    def epoch(
        self, *elements: WindowedValue, begins_us: int = 0, truncate: Truncate | None = None
    ) -> EpochRestrictions:
        self.spent_us, self.now_us = 0, begins_us
        opened = EpochRestrictions(
            store=self.store,
            start_bundle=self.start_bundle,
            on_completed=lambda result: None,
            input_coder=INPUT_CODER,
            collection="words",
            now_us=lambda: begins_us + self.spent_us,
            spent_us=lambda: self.spent_us,
            budget_us=BUDGET_US,
            idle_us=100_000,
            truncate=truncate,
        )
        opened.push([each.value for each in elements], list(elements))
        opened.run_due()
        return opened


def test_what_is_deferred_without_delay_continues_in_the_same_epoch() -> None:
    sdk = Epochs(three_times(0))
    opened = sdk.epoch(restriction("a"), restriction("b"))
    assert sorted(sdk.done) == [(each, position, 0) for each in "ab" for position in range(3)]
    assert sdk.bundles == [2, 2, 2]
    assert not sdk.records.values
    assert not opened.was_cut_off


def test_what_waits_continues_in_the_epoch_in_which_it_is_due() -> None:
    sdk = Epochs(three_times(1_500))
    sdk.epoch(restriction("a"))
    assert sdk.store.next_due() == (None, 1_500_000)
    sdk.epoch(begins_us=1_499_999)
    sdk.epoch(begins_us=1_500_000)
    assert [(element, position) for element, position, _ in sdk.done] == [("a", 0), ("a", 1)]
    sdk.epoch(begins_us=4_000_000)
    assert [position for _, position, _ in sdk.done] == [0, 1, 2]
    assert not sdk.records.values


def test_a_delay_may_end_within_the_epoch() -> None:
    steps = {"waits": (3, 5.0), "busy": (10, 0.0)}

    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        count, delay_ms = steps[element]
        return [(element, position + 1, delay_ms, 0.0)] if position + 1 < count else []

    sdk = Epochs(process, step_us=9_000)
    sdk.epoch(restriction("waits"), restriction("busy"))
    assert [position for element, position, _ in sdk.done if element == "waits"] == [0, 1, 2]
    assert not sdk.records.values


def test_the_budget_ends_an_epoch_and_the_least_recent_goes_first() -> None:
    sdk = Epochs(lambda each, at: [(each, at + 1, 0, 0.0)], step_us=200_000)
    opened = sdk.epoch(restriction("a"), restriction("b"))
    assert opened.was_cut_off
    sdk.epoch(begins_us=1_000_000)
    elements = [element for element, _, _ in sdk.done]
    assert [sorted(elements[:2]), sorted(elements[2:4])] == [["a", "b"], ["a", "b"]]


def test_an_epoch_processes_something_whatever_its_budget() -> None:
    sdk = Epochs(lambda each, at: [(each, at + 1, 0, 0.0)], step_us=BUDGET_US)
    for epoch in range(3):
        sdk.epoch(*[restriction("a")][epoch:], begins_us=epoch * 1_000_000)
    assert [at for _, at, _ in sdk.done] == [0, 1, 2]


def test_a_restriction_that_has_not_begun_holds_its_timestamp() -> None:
    sdk = Epochs(lambda each, at: [], step_us=BUDGET_US)
    timestamps = {"a": 3_000_000, "b": 4_000_000}
    sdk.epoch(restriction("a", timestamp=3), restriction("b", timestamp=4))
    ((begun, _, _),) = sdk.done
    (left,) = timestamps.keys() - {begun}
    assert (sdk.store.least_hold(), sdk.store.count_holders()) == (timestamps[left], 1)


def test_one_that_has_begun_holds_what_it_says() -> None:
    sdk = Epochs(lambda each, at: [(each, at + 1, 50, {"a": 7.0, "b": 6.0}[each])])
    sdk.epoch(restriction("a"), restriction("b"))
    assert sdk.store.least_hold() == 6_000_000


def test_each_window_by_itself() -> None:
    sdk = Epochs(three_times(1_000))
    sdk.epoch(restriction("a", windows=(0, 10)))
    sdk.epoch(begins_us=1_000_000)
    assert sorted(window.start for (window,) in sdk.windows) == [0, 0, 10, 10]


@pytest.mark.parametrize("varies", ["nothing", "state", "size"])
def test_one_that_has_claimed_nothing_backs_off(varies: str) -> None:
    """It comes back as it was: to run it again at once would spin."""

    def process(each: str, at: int) -> list[tuple[str, int, float, float]]:
        assert len(sdk.done) < 10, "it spins"
        return [(each, at, 0, 3.5)] if each == "idle" else []

    sdk = Epochs(process)
    sdk.vary(varies)
    opened = sdk.epoch(restriction("idle"), restriction("busy"), begins_us=7)
    assert len(sdk.done) == 2
    assert sdk.store.next_due() == (None, 100_007)
    assert not opened.was_cut_off


class Slices(Epochs):
    """Restrictions named "slow" need a time before they can claim anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, needs_us: int | None) -> None:
        super().__init__(self.claimed)
        self.needs_us = needs_us
        self.slices_us: list[int] = []
        self.clock_us = 0

        def begun(bundle: object, after_s: float, pieces: int) -> SimpleNamespace:
            self.slices_us.append(round(after_s * 1e6))
            return SimpleNamespace(stop=lambda: None, error=None, residual_roots=[])

        monkeypatch.setattr(epoch_input, "TimedSplit", begun)

    def claimed(self, element: str, position: int) -> list[tuple[str, int, float, float]]:
        if element != "slow":
            self.spent_us += 1_000
            return [(element, position + 1, 50, 0.0)]
        slice_us = self.slices_us[-1]
        if self.needs_us is None:
            self.spent_us += slice_us
            return [(element, position, 0, 0.0)]
        self.spent_us += max(self.needs_us, slice_us)
        return [(element, position + (slice_us > self.needs_us), 0, 0.0)]

    def next_epoch(self, *elements: WindowedValue) -> None:
        self.epoch(*elements, begins_us=self.clock_us)
        self.clock_us += self.spent_us + 1_000_000

    def epochs_until(self, position: int) -> int:
        """Run some until "slow" has come to a position."""
        for count in range(100):
            self.next_epoch()
            if ("slow", position) in [done[:2] for done in self.done]:
                return count
        raise AssertionError(self.slices_us)


@pytest.mark.parametrize("varies", ["nothing", "state", "size"])
def test_what_needs_long_before_its_first_claim_gets_more_time(
    monkeypatch: pytest.MonkeyPatch, varies: str
) -> None:
    sdk = Slices(monkeypatch, needs_us=5_000_000)
    sdk.vary(varies)
    sdk.next_epoch(restriction("slow"), restriction("fast"))
    assert sdk.epochs_until(2) <= 4
    assert max(sdk.slices_us) <= 10_010_000
    assert len([each for each in sdk.done if each[0] == "fast"]) > 3


def test_the_time_shrinks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = Slices(monkeypatch, needs_us=5_000_000)
    sdk.next_epoch(restriction("slow"))
    sdk.epochs_until(1)
    sdk.needs_us = 0
    sdk.epochs_until(15)
    assert sdk.slices_us[-1] == BUDGET_US


def test_what_never_claims_does_not_get_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = Slices(monkeypatch, needs_us=None)
    for count in range(20):
        sdk.next_epoch(*[restriction("slow")][count:])
    assert sdk.slices_us[-2:] == [30_000_000, 30_000_000]


def test_a_drain_truncates_each_restriction_once() -> None:
    """What waits is truncated at once, and what is new; what is left of them is not."""
    sdk = Epochs(three_times(1_500))
    sdk.epoch(restriction("a"), restriction("dropped"))
    truncated: list[str] = []

    def truncate(restrictions: Sequence[WindowedValue]) -> list[WindowedValue]:
        names = [each.value[0][0] for each in restrictions]
        truncated.extend(names)
        return [each for each, name in zip(restrictions, names, strict=True) if name != "dropped"]

    sdk.epoch(restriction("b"), begins_us=100, truncate=truncate)
    assert sorted(truncated) == ["a", "b", "dropped"]
    assert sorted(sdk.done) == [("a", 0, 0), ("a", 1, 100), ("b", 0, 100), ("dropped", 0, 0)]
    sdk.epoch(begins_us=200, truncate=truncate)
    assert len(sdk.done) == 4
    sdk.epoch(begins_us=10_000_000, truncate=truncate)
    assert len(truncated) == 3
    assert [position for name, position, _ in sdk.done if name == "b"] == [0, 1]
    sdk.epoch(begins_us=20_000_000, truncate=truncate)
    assert not sdk.records.values


def test_what_is_truncated_has_no_slice_of_its_own_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the restrictions that ran just before have: so it shares its first bundle."""
    monkeypatch.setattr(epoch_input, "_MAX_AT_ONCE", 2)
    monkeypatch.setattr(
        epoch_input,
        "TimedSplit",
        lambda *_, **__: SimpleNamespace(stop=lambda: None, error=None, residual_roots=[]),
    )
    connects_us = 300_000

    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        if element != "slow":
            return []
        sdk.spent_us += connects_us
        return [(element, position + (not connects_us), 50, 0.0)]

    sdk = Epochs(process)
    sdk.epoch(restriction("slow", windows=(0, 10)), truncate=list)
    connects_us, sdk.bundles = 0, []
    sdk.epoch(restriction("a"), restriction("b"), begins_us=10_000_000, truncate=list)
    assert sdk.bundles == [1, 1, 2]


def test_what_was_truncated_holds_the_watermark_as_before() -> None:
    sdk = Epochs(three_times(1_500))
    sdk.epoch(restriction("a"))
    held_us = sdk.store.least_hold()
    sdk.epoch(begins_us=100, truncate=list)
    assert held_us is not None
    assert sdk.store.least_hold() == held_us
