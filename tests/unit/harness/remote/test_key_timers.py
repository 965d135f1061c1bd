"""Timers of keys as an SDK harness sends them: which fire, and what is sent back."""

import contextlib
import dataclasses
import time
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.coders.coders import IntervalWindowCoder, _TimerCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms import userstate
from apache_beam.transforms.environments import ProcessEnvironment
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import Timer
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, PaneInfo, PaneInfoTiming, create
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.codec.blocks import TimerCodec
from beam_spark_runner.harness.remote.key_timers import (
    DeclaredTimers,
    Due,
    KeyTimers,
    TimerFamily,
    declared_timers,
)
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from beam_spark_runner.semantics.timer_loops import TimerLoops
from beam_spark_runner.semantics.timers import END_OF_TIME, Domain, Instant
from beam_spark_runner.state.memory import MemoryState
from tests.compiled import compile_pipeline

STEP = TransformId("step")
EVENT, CLOCK = TimerFamilyId(STEP, "event"), TimerFamilyId(STEP, "clock")
EXPIRY = TimerFamilyId(STEP, "expiry")
CODER = _TimerCoder(BytesCoder(), IntervalWindowCoder())
CODEC = TimerCodec(BytesCoder(), IntervalWindowCoder(), CODER)
FIRST, SECOND = IntervalWindow(0, 10), IntervalWindow(10, 20)


def declared(allowed_lateness_us: int = 0) -> DeclaredTimers:
    families = {
        EVENT: Domain.EVENT_TIME,
        CLOCK: Domain.PROCESSING_TIME,
        EXPIRY: Domain.EVENT_TIME,
    }
    return DeclaredTimers(
        families={id_: TimerFamily(domain=domain, codec=CODEC) for id_, domain in families.items()},
        expiration=EXPIRY,
        allowed_lateness_us=allowed_lateness_us,
        key_coder=BytesCoder(),
        window_coder=IntervalWindowCoder(),
        transform=STEP,
    )


@pytest.fixture
def timers() -> KeyTimers:
    return KeyTimers(declared())


def timer(
    key: bytes, window: Any, time: float | None, tag: str = "", hold: float | None = None
) -> bytes:
    """Encode a timer; without a time, the clearing of one. ``hold``: of its output."""
    fires = None if time is None else Timestamp(time)
    holds = fires if hold is None else Timestamp(hold)
    coded: bytes = CODER.encode(
        Timer(key, tag, (window,), time is None, fires, holds, PANE_INFO_UNKNOWN)
    )
    return coded


def rounds(timers: KeyTimers) -> list[dict[str, list[tuple[bytes, float, float]]]]:
    """What fires, bundle for bundle: by family the key, the window's start and the time."""
    found = []
    while popped := timers.pop(END_OF_TIME):
        found.append(
            {
                family.family: [
                    (each.user_key, float(each.windows[0].start), float(each.fire_timestamp))
                    for each in CODER.get_impl().decode_all(coded)
                ]
                for family, coded in popped.timers.items()
            }
        )
    return found


def test_each_key_and_window_has_one_timer_in_a_bundle(timers: KeyTimers) -> None:
    coded = [timer(b"a", FIRST, 2, "x"), timer(b"a", FIRST, 1, "y"), timer(b"a", SECOND, 12)]
    assert timers.apply(EVENT, b"".join([*coded, timer(b"b", FIRST, 7)])) == 4
    assert len(timers) == 4
    assert rounds(timers) == [
        {"event": [(b"a", 0, 1), (b"a", 10, 12), (b"b", 0, 7)]},
        {"event": [(b"a", 0, 2)]},
    ]
    assert len(timers) == 0


def test_keys_without_timers_take_no_memory(timers: KeyTimers) -> None:
    for key in (b"a", b"b"):
        timers.apply(EVENT, timer(key, FIRST, 2))
    timers.apply(EVENT, timer(b"a", FIRST, None))
    assert rounds(timers) == [{"event": [(b"b", 0, 2)]}]
    assert timers._queues == {}


def test_what_is_set_again_or_cleared_does_not_fire(timers: KeyTimers) -> None:
    timers.apply(EVENT, timer(b"a", FIRST, 2) + timer(b"b", FIRST, 3) + timer(b"c", FIRST, 4))
    timers.apply(EVENT, timer(b"a", FIRST, None) + timer(b"b", FIRST, 5))
    assert rounds(timers) == [{"event": [(b"b", 0, 5), (b"c", 0, 4)]}]


def test_timers_that_are_set_again_at_the_end_of_time_are_counted(timers: KeyTimers) -> None:
    heard: list[tuple[str, int]] = []

    class Loops(TimerLoops):
        def fired(self, family: str, set_again: int) -> None:
            heard.append((family, set_again))

    for second in range(3):
        timers.apply(EVENT, timer(b"a", FIRST, second) + timer(b"b", FIRST, 5))
        assert timers.pop(END_OF_TIME, loops=Loops(lambda: 0, print, float))
    assert heard == [("event", 1), ("event", 1), ("event", 2), ("event", 2)]


def test_event_time_then_the_clock_then_windows_expire(timers: KeyTimers) -> None:
    origin = create(None, Timestamp(1).micros, (FIRST,), PANE_INFO_UNKNOWN)
    timers.expect_expiry(b"a", origin)
    timers.expect_expiry(b"a", origin)
    timers.apply(CLOCK, timer(b"a", FIRST, 1e9))
    timers.apply(EVENT, timer(b"a", FIRST, 5))
    assert rounds(timers) == [
        {"event": [(b"a", 0, 5)]},
        {"clock": [(b"a", 0, 1e9)]},
        {"expiry": [(b"a", 0, 10)]},
    ]


def test_a_timer_behind_the_end_of_its_window_fires_there_and_only_once(timers: KeyTimers) -> None:
    timers.apply(EVENT, timer(b"a", FIRST, 500))
    assert rounds(timers) == [{"event": [(b"a", 0, 10)]}]
    timers.apply(EVENT, timer(b"a", FIRST, 2))
    popped = timers.pop(END_OF_TIME)
    assert list(popped.timers) == [EVENT]


def test_windows_live_on_for_the_allowed_lateness() -> None:
    timers = KeyTimers(declared(allowed_lateness_us=5_000_000))
    timers.expect_expiry(b"a", create(None, 0, (FIRST,), PANE_INFO_UNKNOWN))
    timers.apply(EVENT, timer(b"a", FIRST, 13) + timer(b"a", FIRST, 500, "after"))
    assert rounds(timers) == [
        {"event": [(b"a", 0, 13)]},
        {"event": [(b"a", 0, 15)]},
        {"expiry": [(b"a", 0, 15)]},
    ]


def test_a_timer_keeps_the_timestamp_of_its_output(timers: KeyTimers) -> None:
    """Java lets both differ. What fires at the end of its window emits nothing after it."""
    timers.apply(EVENT, timer(b"a", FIRST, 7, hold=3) + timer(b"b", FIRST, 500, hold=400))
    timers.apply(CLOCK, timer(b"c", FIRST, 1e9, hold=4))
    fired = {
        each.user_key: (float(each.fire_timestamp), float(each.hold_timestamp))
        for coded in timers.pop(END_OF_TIME).timers.values()
        for each in CODER.get_impl().decode_all(coded)
    }
    assert fired == {b"a": (7, 3), b"b": (10, 10), b"c": (1e9, 4)}


def test_a_timer_without_an_output_timestamp_is_stored() -> None:
    """Java sends a time for it that no element can have, and that has more than 63 bits."""
    first, then, store = KeyTimers(declared()), KeyTimers(declared()), MemoryState(lambda *_: 0)
    none = Timestamp(micros=MAX_US + 1_000)
    coded = Timer(b"a", "", (FIRST,), False, Timestamp(7), none, PANE_INFO_UNKNOWN)
    first.apply(EVENT, CODER.encode(coded))
    first.store(store, [b"a"])
    (stored,) = store.timers(STEP, BytesCoder().get_impl().encode_nested(b"a"))
    assert MAX_US < stored.hold_us < 2**63
    assert then.load(store, b"a") == 1
    (fired,) = (
        each
        for coded in then.pop(END_OF_TIME).timers.values()
        for each in CODER.get_impl().decode_all(coded)
    )
    assert fired.hold_timestamp == none


def test_a_timer_outside_of_time_is_stored(timers: KeyTimers) -> None:
    """Java's times are any longs of milliseconds; Beam's are longs of microseconds."""
    store = MemoryState(lambda *_: 0)
    never, hold = Timestamp(micros=((1 << 63) - 1) * 1000), Timestamp(micros=-(1 << 63) * 1000)
    for family, fires in ((CLOCK, never), (EVENT, Timestamp(7))):
        coded = Timer(b"a", "", (FIRST,), False, fires, hold, PANE_INFO_UNKNOWN)
        timers.apply(family, CODER.encode(coded))
    timers.store(store, [b"a"])
    stored = store.timers(STEP, BytesCoder().get_impl().encode_nested(b"a"))
    assert sorted((each.fires_us, each.hold_us) for each in stored) == [
        (7_000_000, MIN_US),
        (MAX_US, MIN_US),
    ]


def test_timers_are_read_as_they_are_written() -> None:
    coded = timer(b"a", FIRST, 2, "x"), timer(b"b" * 300, SECOND, None), timer(b"", SECOND, 7)
    assert [CODEC.write(each) for each in CODEC.read(b"".join(coded))] == list(coded)


@pytest.mark.parametrize("time", [2, None])
def test_what_ends_within_a_timer_is_told(time: float | None) -> None:
    coded = timer(b"key", FIRST, time, "tag")
    for end in range(1, len(coded)):
        with pytest.raises(MalformedBytesError):
            list(CODEC.read(coded[:end]))


def test_a_timer_in_no_window_is_malformed() -> None:
    """It would never fire."""
    set_ = Timer(b"a", "x", (), False, Timestamp(12), Timestamp(12), PANE_INFO_UNKNOWN)
    with pytest.raises(MalformedBytesError, match="in no window"):
        list(CODEC.read(CODER.get_impl().encode_nested(set_)))


def test_a_timer_brings_the_pane_of_what_set_it(timers: KeyTimers) -> None:
    pane = PaneInfo(True, False, PaneInfoTiming.EARLY, 0, -1)
    timers.expect_expiry(b"a", create(None, 0, (FIRST,), pane))
    set_ = Timer(b"a", "x", (SECOND,), False, Timestamp(12), Timestamp(12), pane)
    timers.apply(EVENT, CODER.encode(set_))
    fired = {
        family.family: [(each.dynamic_timer_tag, each.paneinfo, each.clear_bit) for each in some]
        for family, coded in timers.pop(END_OF_TIME).timers.items()
        for some in [list(CODER.get_impl().decode_all(coded))]
    }
    assert fired == {"expiry": [("", pane, False)], "event": [("x", pane, False)]}


def test_the_output_of_an_expiry_is_within_the_window() -> None:
    timers = KeyTimers(declared(allowed_lateness_us=5_000_000))
    timers.expect_expiry(b"a", create(None, 0, (FIRST, SECOND), PANE_INFO_UNKNOWN))
    assert len(timers) == 2
    (coded,) = timers.pop(END_OF_TIME).timers.values()
    holds = [each.hold_timestamp.micros for each in CODER.get_impl().decode_all(coded)]
    assert holds == [9_999_000, 19_999_000]


def test_a_window_ends_also_if_no_step_wants_to_know() -> None:
    timers = KeyTimers(dataclasses.replace(declared(), expiration=None))
    timers.expect_expiry(b"a", create(None, 0, (FIRST,), PANE_INFO_UNKNOWN))
    timers.apply(EVENT, timer(b"a", FIRST, 2))
    assert list(timers.pop(END_OF_TIME).timers) == [EVENT]
    assert timers.pop(END_OF_TIME) == Due({}, [(b"a", FIRST)])
    assert not timers.pop(END_OF_TIME)


def test_a_key_does_not_pass_what_holds_it(timers: KeyTimers) -> None:
    timers.apply(EVENT, timer(b"a", FIRST, 3) + timer(b"b", FIRST, 3))
    assert list(timers.pop(END_OF_TIME, {b"a": 2_000_000}).timers) == [EVENT]
    assert len(timers) == 1


def test_a_clock_of_a_test_begins_with_the_unix_epoch(timers: KeyTimers) -> None:
    soon = time.time() + 10
    timers.apply(CLOCK, timer(b"a", FIRST, soon) + timer(b"b", FIRST, 107), clock_us=100_000_000)
    assert len(timers) == 2
    assert list(timers.pop(Instant(0, 108_000_000)).timers) == [CLOCK]
    assert len(timers) == 1
    assert list(timers.pop(Instant(0, 111_000_000)).timers) == [CLOCK]


class TwoClocks(beam.DoFn):  # type: ignore[misc]
    """Has a timer of each domain."""

    SEEN = userstate.ReadModifyWriteStateSpec("seen", BytesCoder())
    AT = userstate.TimerSpec("at", TimeDomain.WATERMARK)
    IN = userstate.TimerSpec("in", TimeDomain.REAL_TIME)

    def process(
        self,
        element: Any,
        side: Any,
        at: Any = beam.DoFn.TimerParam(AT),
        in_: Any = beam.DoFn.TimerParam(IN),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> None:
        raise AssertionError("is not run")

    @userstate.on_timer(AT)  # type: ignore[untyped-decorator]
    def at(self) -> None: ...

    @userstate.on_timer(IN)  # type: ignore[untyped-decorator]
    def in_(self) -> None: ...


def _hearing_of_expiry(descriptor: Any) -> Any:
    """As Java's SDK would write it."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        if "ts-at" in payload.timer_family_specs:
            payload.on_window_expiration_timer_family_spec = "ts-at"
            transform.spec.payload = payload.SerializeToString()
    return descriptor


def _timers_of(*, allowed_lateness: int = 0, has_timers: bool = True) -> DeclaredTimers:
    """What is declared by the last stage of a pipeline."""
    pipeline = beam.Pipeline()
    side = pipeline | "side" >> beam.Create([(b"a", 0)])  # in another windowing
    keyed = (
        pipeline
        | beam.Create([(b"a", 1)])
        | beam.WindowInto(FixedWindows(10), allowed_lateness=allowed_lateness)
        | beam.Map(lambda pair: pair).with_output_types(beam.typehints.Tuple[bytes, int])
    )
    fn = TwoClocks() if has_timers else beam.Map(lambda pair, _: pair).fn
    keyed | "step" >> beam.ParDo(fn, beam.pvalue.AsDict(side))
    proto = pipeline.to_runner_api(default_environment=ProcessEnvironment(""))
    plan = compile_pipeline(proto)
    stages = []
    for id_ in sorted(plan.stages):
        description = describe(plan, id_)
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(
            description.descriptor().transforms[description.source].spec.payload
        )
        input_coder = coder_seen_by_the_runner(description.descriptor(), port.coder_id)
        descriptor = _hearing_of_expiry(description.descriptor())
        stages.append(declared_timers(descriptor, input_coder))
    found = [each for each in stages if each.families]
    assert len(found) == has_timers
    return found[0] if found else stages[-1]


@pytest.mark.parametrize("chosen", ["main", "side"])
def test_what_a_stage_says_of_its_timers(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK makes the coder of timers of whichever input comes first in a set of strings."""
    key_and_window_coder = beam.ParDo._get_key_and_window_coder

    def of_chosen(par_do: Any, named_inputs: Any) -> Any:
        fitting = [name for name in named_inputs if ("side" in name) == (chosen == "side")]
        return key_and_window_coder(par_do, {name: named_inputs[name] for name in fitting})

    monkeypatch.setattr(beam.ParDo, "_get_key_and_window_coder", of_chosen)
    found = _timers_of(allowed_lateness=7)
    assert {id_.family: each.domain for id_, each in found.families.items()} == {
        "ts-at": Domain.EVENT_TIME,
        "ts-in": Domain.PROCESSING_TIME,
    }
    assert found.expiration in found.families
    assert found.expiration is not None
    assert found.expiration.family == "ts-at"
    assert found.allowed_lateness_us == 7_000_000
    coded = timer(b"a", FIRST, 2, "x")
    for each in found.families.values():
        (read,) = each.codec.read(coded)
        assert each.codec.write(read) == coded


def test_a_stage_without_timers_says_so() -> None:
    found = _timers_of(has_timers=False)
    assert (found.families, found.expiration, found.transform) == ({}, None, None)


@given(st.binary(max_size=60))
def test_any_bytes_are_timers_or_are_told(block: bytes) -> None:
    with contextlib.suppress(MalformedBytesError):
        for each in CODEC.read(block):
            assert isinstance(each, Timer)
