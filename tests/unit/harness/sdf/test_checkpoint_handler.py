"""What becomes of the residuals of a bundle: timers, states, and what holds the watermark."""

from typing import Any

import pytest
from apache_beam import coders
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

from beam_spark_runner.core.errors import FnApiProtocolError, InvalidPipelineError
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.bundle import BundleResult, Residual
from beam_spark_runner.harness.sdf.checkpoint_handler import (
    RefusingCheckpointHandler,
    SdfKeySelector,
    SdfStateInternals,
    SdfStateInternalsFactory,
    SdfTimerInternalsFactory,
    StateAndTimerBundleCheckpointHandler,
)
from beam_spark_runner.state.residuals import InMemoryTimers, InMemoryValues
from tests.unit.harness.sdf.residual_protos import (
    INPUT_CODER,
    PANE,
    RESTRICTION_AND_STATE,
    WINDOW_CODER,
    residual,
    response,
    restriction,
)

NOW_US = 1_000_000_000


class Fixture:
    """A handler over internals in memory, at a time that only the test moves."""

    def __init__(self) -> None:
        self.now_us = NOW_US
        self.timers = InMemoryTimers(lambda: self.now_us)
        self.values = InMemoryValues()
        key_of = SdfKeySelector(INPUT_CODER, "words")
        self.handler = StateAndTimerBundleCheckpointHandler(
            SdfTimerInternalsFactory(key_of, self.timers),
            SdfStateInternalsFactory(key_of, self.values),
            INPUT_CODER,
            WINDOW_CODER,
        )

    def take(self, timer: Any) -> Any:
        state = SdfStateInternals(timer.key, self.values)
        value = state.read(timer.window, timer.id)
        state.clear(timer.window, timer.id)
        return value


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_one_timer_and_one_state_in_each_window(fixture: Fixture) -> None:
    element = restriction("a", 7, windows=(0, 10, 20), timestamp=25.25)
    fixture.handler.on_checkpoint(response(residual(element)))
    assert (len(fixture.timers), len(fixture.values)) == (3, 3)
    timers = fixture.timers.pop_due()
    assert {timer.id for timer in timers} == {timers[0].id}
    assert {timer.window for timer in timers} == set(map(WINDOW_CODER.encode, element.windows))
    kept = [fixture.take(timer) for timer in timers]
    assert [value.value for value in kept] == [element.value] * 3
    assert {value.timestamp for value in kept} == {element.timestamp}
    assert {value.pane_info for value in kept} == {PANE}
    assert sorted(value.windows[0] for value in kept) == sorted(element.windows)
    assert {len(value.windows) for value in kept} == {1}


@pytest.mark.parametrize(
    ("delay_ms", "due_after_us"),
    [
        pytest.param(None, 0, id="none given: at once"),
        pytest.param(0, 0, id="zero"),
        pytest.param(-5_000, 0, id="it took longer to ask than to wait"),
        pytest.param(1, 1_000, id="a millisecond is not rounded to none"),
        pytest.param(999, 999_000, id="just below a second"),
        pytest.param(61_001, 61_001_000, id="milliseconds, not seconds"),
    ],
)
def test_when_a_residual_is_due(
    fixture: Fixture, delay_ms: float | None, due_after_us: int
) -> None:
    fixture.handler.on_checkpoint(response(residual(restriction("a"), delay_ms)))
    assert fixture.timers.next_due_us() == NOW_US + due_after_us
    fixture.now_us = NOW_US + due_after_us - 1
    assert fixture.timers.pop_due() == []
    fixture.now_us += 1
    assert len(fixture.timers.pop_due()) == 1
    assert len(fixture.timers) == 0


@pytest.mark.parametrize(
    ("watermarks", "hold_us"),
    [
        pytest.param({}, MIN_US, id="none: all of time"),
        pytest.param({"out": 12.5}, 12_500_000, id="one"),
        pytest.param({"out": 12.5, "late": 3.001}, 3_001_000, id="the least"),
        pytest.param({"out": -4}, -4_000_000, id="before 1970"),
        # Outside of what protobuf allows for a Timestamp; Beam sends them all the same.
        pytest.param({"out": MIN_TIMESTAMP}, MIN_US, id="before all elements"),
        pytest.param({"out": MAX_TIMESTAMP}, 1_000_000_000_000, id="after all elements"),
    ],
)
def test_what_holds_the_watermark(
    fixture: Fixture, watermarks: dict[str, Any], hold_us: int
) -> None:
    assert fixture.timers.watermark_hold_us() == MAX_US
    fixture.handler.on_checkpoint(
        response(
            residual(restriction("late"), 60_000, {"out": 1e6}),
            residual(restriction("a"), 0, watermarks),
        )
    )
    assert fixture.timers.watermark_hold_us() == hold_us
    fixture.timers.pop_due()
    assert fixture.timers.watermark_hold_us() == 1_000_000_000_000
    fixture.timers.pop_all()
    assert fixture.timers.watermark_hold_us() == MAX_US


def test_ids_are_never_used_again(fixture: Fixture) -> None:
    """Not by another handler either: after a restart a counter would begin again."""
    other = Fixture()
    other.timers, other.values = fixture.timers, fixture.values
    key_of = SdfKeySelector(INPUT_CODER, "words")
    other.handler = StateAndTimerBundleCheckpointHandler(
        SdfTimerInternalsFactory(key_of, fixture.timers),
        SdfStateInternalsFactory(key_of, fixture.values),
        INPUT_CODER,
        WINDOW_CODER,
    )
    for _ in range(50):
        for each in (fixture, other):
            each.handler.on_checkpoint(response(residual(restriction("same"))))
    assert len(fixture.values) == 100
    assert len({timer.id for timer in fixture.timers.pop_due()}) == 100


def test_over_many_polls_nothing_piles_up(fixture: Fixture) -> None:
    for position in range(100):
        fixture.handler.on_checkpoint(response(residual(restriction("a", position), 10)))
        assert (len(fixture.timers), len(fixture.values)) == (1, 1)
        fixture.now_us += 10_000
        (timer,) = fixture.timers.pop_due()
        assert fixture.take(timer).value[0][1][0] == position
    assert (len(fixture.timers), len(fixture.values)) == (0, 0)


def test_the_key_is_the_element_and_not_its_restriction(fixture: Fixture) -> None:
    key_of = SdfKeySelector(INPUT_CODER, "words")
    assert key_of(restriction("a", 1)) == key_of(restriction("a", 2)) == b"a"
    assert key_of(restriction("b", 1)) == b"b"
    fixture.handler.on_checkpoint(response(residual(restriction("b", 1))))
    (timer,) = fixture.timers.pop_due()
    assert timer.key == b"b"
    with pytest.raises(KeyError):  # under another key there is nothing
        SdfStateInternals(b"a", fixture.values).read(timer.window, timer.id)


def test_backends_see_the_key_under_their_lock() -> None:
    seen = []

    class Spying(InMemoryTimers):
        def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None:
            seen.append((self._key, self.lock.locked()))

    timers, values = Spying(lambda: 0), InMemoryValues()
    key_of = SdfKeySelector(INPUT_CODER, "words")
    StateAndTimerBundleCheckpointHandler(
        SdfTimerInternalsFactory(key_of, timers),
        SdfStateInternalsFactory(key_of, values),
        INPUT_CODER,
        WINDOW_CODER,
    ).on_checkpoint(response(residual(restriction("a")), residual(restriction("b"))))
    assert seen == [(b"a", True), (b"b", True)]


@pytest.mark.parametrize(
    "coder",
    [
        coders.StrUtf8Coder(),
        coders.TupleCoder([coders.StrUtf8Coder(), coders.FloatCoder()]),
        coders.TupleCoder(
            [coders.TupleCoder([coders.StrUtf8Coder(), coders.VarIntCoder()]), coders.FloatCoder()]
        ),
        coders.TupleCoder(
            [coders.StrUtf8Coder(), coders.TupleCoder([RESTRICTION_AND_STATE, coders.FloatCoder()])]
        ),
    ],
    ids=["no KV", "no element with a restriction", "no watermark state", "the wrong way round"],
)
def test_a_coder_of_another_shape_names_the_collection(coder: Any) -> None:
    with pytest.raises(InvalidPipelineError, match=r"^Read/Split\.out: .*KV<KV<element"):
        SdfKeySelector(coders.WindowedValueCoder(coder, WINDOW_CODER), "Read/Split.out")


def test_a_split_is_rescheduled_like_a_response(fixture: Fixture) -> None:
    split = beam_fn_api_pb2.ProcessBundleSplitResponse(
        residual_roots=[residual(restriction("a", 5))]
    )
    fixture.handler.on_checkpoint(split)
    (timer,) = fixture.timers.pop_due()
    assert fixture.take(timer).value[0] == ("a", (5, 0))


@pytest.mark.parametrize(
    "result",
    [
        BundleResult(monitoring_infos=(), residual_roots=(residual(restriction("a")),)),
        BundleResult(monitoring_infos=(), deferred=(Residual(restriction("a"), 0, 0),)),
    ],
    ids=["encoded", "not encoded"],
)
def test_only_splittable_dofns_may_defer(result: BundleResult) -> None:
    handler = RefusingCheckpointHandler("Format")
    handler.on_checkpoint(BundleResult(monitoring_infos=()))
    with pytest.raises(
        FnApiProtocolError,
        match="Format: self-checkpoint is only supported on splittable DoFns",
    ):
        handler.on_checkpoint(result)


def test_a_residual_in_no_window_is_an_error(fixture: Fixture) -> None:
    """Else the rest of its restriction would be lost."""
    with pytest.raises(FnApiProtocolError, match="'process' in no window"):
        fixture.handler.on_checkpoint(response(residual(restriction("a", windows=()))))


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63)])
def test_times_beyond_those_of_beam(fixture: Fixture, seconds: int) -> None:
    root = residual(restriction("a"))
    root.requested_time_delay.seconds = seconds
    root.application.output_watermarks["out"].seconds = seconds
    fixture.handler.on_checkpoint(response(root))
    assert fixture.timers.watermark_hold_us() == (MAX_US if seconds > 0 else MIN_US)
    assert fixture.timers.next_due_us() == (MAX_US if seconds > 0 else NOW_US)
