"""Bundles over what is deferred, with a scripted SDK and a clock of the test's own."""

import pytest
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.sdf.splittable import Budget, SplittableInput, run_to_end
from tests.harness.processes import wait_for
from tests.unit.harness.sdf.residual_protos import INPUT_CODER, restriction
from tests.unit.harness.sdf.scripted_sdk import Process, ScriptedSdk, three_times


class Sdk(ScriptedSdk):
    """Also waits until something is due."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.waits_us: list[int] = []
        self.input = self.open()

    def give_budget(
        self, duration_us: int, longest_us: int | None = None
    ) -> list[tuple[str, int, int, int]]:
        """Let the input leave what it does not get to; returns the list where that goes."""
        left: list[tuple[str, int, int, int]] = []

        def leave(element: WindowedValue, due_us: int, hold_us: int) -> None:
            (name, (position, _)), _ = element.value
            left.append((name, position, due_us, hold_us))

        self.input = self.open(
            Budget(duration_us=duration_us, pieces=2, leave=leave, longest_us=longest_us)
        )
        return left

    def open(self, budget: Budget | None = None) -> SplittableInput:
        return SplittableInput(
            start_bundle=self.start_bundle,
            on_completed=lambda result: None,
            input_coder=INPUT_CODER,
            collection="words",
            now_us=lambda: self.now_us,
            budget=budget,
        )

    def push(self, *elements: WindowedValue) -> None:
        self.input.push([each.value for each in elements], list(elements))

    def run(self) -> None:
        run_to_end([self.input], lambda: self.now_us, self.wait)

    def wait(self, duration_us: int) -> None:
        self.waits_us.append(duration_us)
        self.now_us += duration_us


def test_what_is_deferred_without_delay_goes_into_the_next_bundle() -> None:
    sdk = Sdk(three_times(0))
    sdk.push(restriction("a"), restriction("b"))
    sdk.run()
    assert sdk.bundles == [2, 2, 2]
    assert sorted(sdk.done) == [(each, position, 0) for each in "ab" for position in range(3)]
    assert set(sdk.waits_us) == {0}


def test_a_delay_is_waited_for_and_no_longer() -> None:
    sdk = Sdk(three_times(1500))
    sdk.push(restriction("a"))
    sdk.run()
    assert sdk.done == [("a", 0, 0), ("a", 1, 1_500_000), ("a", 2, 3_000_000)]


def test_those_that_are_due_go_first() -> None:
    delays = {"slow": 5_000.0, "quick": 10.0}
    sdk = Sdk(lambda each, at: [(each, at + 1, delays[each], 0.0)] if at < 2 else [])
    sdk.push(restriction("slow"), restriction("quick"))
    sdk.run()
    assert [(element, at) for element, at, _ in sdk.done] == [
        ("slow", 0),
        ("quick", 0),
        ("quick", 1),
        ("quick", 2),
        ("slow", 1),
        ("slow", 2),
    ]
    assert sdk.now_us == 10_000_000


def test_two_stages_wait_at_the_same_time() -> None:
    one, other = Sdk(three_times(1000)), Sdk(three_times(1000))
    one.push(restriction("a"))
    other.push(restriction("b"))

    def wait(duration_us: int) -> None:
        one.wait(duration_us)
        other.wait(duration_us)

    run_to_end([one.input, other.input], lambda: one.now_us, wait)
    assert [at for _, _, at in one.done] == [at for _, _, at in other.done]
    assert one.now_us == 2_000_000


def test_one_that_defers_forever_does_not_keep_the_other_waiting() -> None:
    for_ever, other = Sdk(lambda each, at: [(each, at + 1, 0.0, 0.0)]), Sdk(three_times(0))
    for_ever.push(restriction("a"))
    other.push(restriction("b"))

    class StopError(Exception):
        pass

    def wait(duration_us: int) -> None:
        if len(for_ever.done) > 10:
            raise StopError

    with pytest.raises(StopError):
        run_to_end([for_ever.input, other.input], lambda: 0, wait)
    assert len(other.done) == 3


def test_whoever_is_not_wanted_any_more_is_told_while_it_waits() -> None:
    sdk = Sdk(three_times(3_600_000))
    sdk.push(restriction("a"))

    class AbandonedError(Exception):
        pass

    def wait(duration_us: int) -> None:
        if duration_us:
            raise AbandonedError

    with pytest.raises(AbandonedError):
        run_to_end([sdk.input], lambda: sdk.now_us, wait)
    assert len(sdk.done) == 1


def test_an_element_in_many_windows_is_processed_in_each() -> None:
    sdk = Sdk(three_times(0))
    sdk.push(restriction("a", windows=(0, 10)))
    sdk.run()
    assert len(sdk.done) == 6
    assert {len(windows) for windows in sdk.windows} == {1}
    assert len(set(sdk.windows)) == 2


def test_nothing_is_late_for_a_replay() -> None:
    sdk = Sdk(three_times(0))
    sdk.push(restriction("a", timestamp=-1e9))
    sdk.run()
    assert len(sdk.done) == 3


def test_no_input_no_bundle() -> None:
    sdk = Sdk(three_times(0))
    sdk.run()
    assert sdk.bundles == []


def _sized(name: str, size: float, position: int = 0) -> WindowedValue:
    element = restriction(name, position)
    return element.with_value((element.value[0], size))


def _slow(sdk: Sdk, step_us: int, then: Process) -> Process:
    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        sdk.now_us += step_us
        return then(element, position)

    return process


def test_what_is_not_begun_in_time_is_left() -> None:
    sdk = Sdk(three_times(0))
    sdk.process = _slow(sdk, 3_000_000, lambda *_: [])
    left = sdk.give_budget(2_000_000)
    sdk.push(_sized("a", 9), _sized("b", 1), _sized("c", 1, 7))
    assert sdk.done == []  # what to do depends on all that there is
    sdk.run()
    assert sdk.done == [("a", 0, 0)]
    assert left == [("b", 0, 0, MIN_US), ("c", 7, 0, MIN_US)]
    assert sdk.input.pending() == 0


def test_what_is_deferred_is_left_with_its_time() -> None:
    sdk = Sdk(three_times(0))
    later: Process = lambda name, at: [(name, at + 1, 60_000 if name == "a" else 0, 5.0)]  # noqa: E731
    sdk.process = _slow(sdk, 1_500_000, later)
    left = sdk.give_budget(2_000_000)
    sdk.push(_sized("a", 1), _sized("b", 1))
    sdk.run()
    assert [(name, at) for name, at, _ in sdk.done] == [("a", 0), ("b", 0)]
    assert left == [("b", 1, 0, 5_000_000), ("a", 1, 63_000_000, 5_000_000)]


def test_it_is_left_when_time_is_spent_by_waiting() -> None:
    sdk = Sdk(three_times(60_000))
    left = sdk.give_budget(2_000_000)
    sdk.push(_sized("a", 1))
    sdk.run()
    assert sdk.now_us == 2_000_000
    assert left == [("a", 1, 60_000_000, 0)]


def test_what_was_left_elsewhere_is_due_when_it_says() -> None:
    sdk = Sdk(three_times(0))
    left = sdk.give_budget(4_000_000)
    sdk.input.push_later(_sized("a", 1, 1), 3_000_000)
    sdk.input.push_later(_sized("b", 1, 1), 30_000_000)
    sdk.run()
    assert sdk.done == [("a", 1, 3_000_000), ("a", 2, 3_000_000)]
    assert left == [("b", 1, 30_000_000, MIN_US)]


@pytest.mark.parametrize("count", [3, 1_500])
def test_many_of_one_size_stay(count: int) -> None:
    sdk = Sdk(three_times(0))
    sdk.process = _slow(sdk, 3_000_000, three_times(0))
    left = sdk.give_budget(2_000_000)
    for number in range(count):
        sdk.push(_sized(str(number), 5))
    assert bool(sdk.done) == (count > 1_000)
    sdk.run()
    assert left == []
    assert len(sdk.done) == 3 * count


@pytest.mark.parametrize("count", [3, 1_500])
def test_many_of_one_size_are_left_after_the_longest_time(count: int) -> None:
    sdk = Sdk(lambda *_: [])
    sdk.process = _slow(sdk, 3_000_000, lambda *_: [])
    left = sdk.give_budget(2_000_000, longest_us=4_000_000)
    for number in range(count):
        sdk.push(_sized(str(number), 5))
    sdk.run()
    assert [name for name, _, _ in sdk.done] == ["0", "1"]
    assert [name for name, *_ in left] == [str(number) for number in range(2, count)]
    assert sdk.input.pending() == 0


@pytest.mark.parametrize(("sizes", "fractions"), [([9], [1 / 2, 0]), ([5, 5, 5], [0])])
def test_only_what_others_should_help_with_is_cut_into_pieces(
    sizes: list[float], fractions: list[float]
) -> None:
    sdk = Sdk(lambda *_: [])

    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        wait_for(lambda: len(sdk.fractions) >= len(fractions))
        return []

    sdk.process = process
    sdk.give_budget(0, longest_us=0)
    sdk.push(*(_sized(str(number), size) for number, size in enumerate(sizes)))
    sdk.run()
    assert sdk.fractions[: len(fractions)] == fractions


def test_a_budget_of_nothing_still_makes_progress() -> None:
    sdk = Sdk(three_times(0))
    left = sdk.give_budget(0)
    sdk.push(_sized("a", 1))
    sdk.run()
    assert sdk.done == [("a", 0, 0)]
    assert left == [("a", 1, 0, 0)]


# A tree: what each part defers, with delay and watermark. Its node's position names it.
Tree = dict[int, list[tuple[int, int, int]]]


@st.composite
def _trees(draw: st.DrawFn) -> Tree:
    count = draw(st.integers(1, 25))
    tree: Tree = {}
    for node in range(1, count):
        parent = draw(st.integers(0, node - 1))
        delay_ms, watermark = draw(st.integers(0, 5_000)), draw(st.integers(-1_000, 1_000))
        tree.setdefault(parent, []).append((node, delay_ms, watermark))
    return tree


def _assert_each_node_was_done_once(
    sdk: Sdk, trees: list[Tree], due: dict[tuple[str, int], int]
) -> None:
    """And none of them earlier than it was due."""
    processed = [(element, position) for element, position, _ in sdk.done]
    nodes = {
        (str(number), node)
        for number, tree in enumerate(trees)
        for node in [0, *(child for some in tree.values() for child, _, _ in some)]
    }
    assert len(processed) == len(set(processed))
    assert set(processed) == nodes
    assert all(at_us >= due.get((each, node), 0) for each, node, at_us in sdk.done)


@given(st.lists(_trees(), min_size=1, max_size=4))
def test_every_part_of_a_tree_is_processed_once_and_in_time(trees: list[Tree]) -> None:
    due: dict[tuple[str, int], int] = {}
    waiting: dict[tuple[str, int], float] = {}  # what is pending: its watermark
    holds: list[tuple[int, float]] = []

    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        waiting.pop((element, position), None)
        deferred = trees[int(element)].get(position, [])
        for node, delay_ms, watermark in deferred:
            due[element, node] = sdk.now_us + delay_ms * 1000
            waiting[element, node] = watermark
        return [(element, node, delay_ms, watermark) for node, delay_ms, watermark in deferred]

    sdk = Sdk(process)
    sdk.push(*(restriction(str(number)) for number in range(len(trees))))

    def wait(duration_us: int) -> None:
        expected = min((mark * 1e6 for mark in waiting.values()), default=MAX_US)
        holds.append((sdk.input.watermark_hold_us(), expected))
        sdk.wait(duration_us)

    run_to_end([sdk.input], lambda: sdk.now_us, wait)
    _assert_each_node_was_done_once(sdk, trees, due)
    assert all(hold_us <= expected for hold_us, expected in holds)
    assert sdk.input.watermark_hold_us() == MAX_US


@given(
    trees=st.lists(_trees(), min_size=1, max_size=4),
    step_us=st.sampled_from([0, 1, 300_000, 2_000_000]),
    budget_us=st.sampled_from([1_000, 100_000, 1_000_000, 10_000_000]),
    sizes=st.lists(st.sampled_from([1.0, 90.0]), min_size=4, max_size=4),
    longest_us=st.sampled_from([None, 500_000]),
)
def test_every_part_of_a_tree_is_processed_once_in_whichever_round(
    trees: list[Tree],
    step_us: int,
    budget_us: int,
    sizes: list[float],
    longest_us: int | None,
) -> None:
    due: dict[tuple[str, int], int] = {}
    marks: dict[tuple[str, int], int] = {}

    def process(element: str, position: int) -> list[tuple[str, int, float, float]]:
        deferred = trees[int(element)].get(position, [])
        for node, delay_ms, watermark in deferred:
            # A bundle's residuals are scheduled when it ends, which is not earlier than now.
            due[element, node] = sdk.now_us + delay_ms * 1000
            marks[element, node] = watermark * 1_000_000
        return [(element, node, delay_ms, watermark) for node, delay_ms, watermark in deferred]

    sdk = Sdk(process)
    sdk.process = _slow(sdk, step_us, process)
    left = [(str(number), 0, 0, MIN_US) for number in range(len(trees))]
    first = True
    for _ in range(200):
        pending, left = left, sdk.give_budget(budget_us, longest_us)
        for name, position, due_us, hold_us in pending:
            assert hold_us <= marks.get((name, position), MIN_US)
            element = _sized(name, sizes[int(name)] if first else 1.0, position)
            if due_us:
                sdk.input.push_later(element, due_us)
            else:
                sdk.push(element)
        sdk.run()
        assert sdk.input.watermark_hold_us() == MAX_US
        budget_us, first = min(2 * budget_us, longest_us or 2 * budget_us), False
        if not left:
            break
    assert not left
    _assert_each_node_was_done_once(sdk, trees, due)
