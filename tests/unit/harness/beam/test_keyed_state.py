"""State of the embedded stage: as Beam's own, and gone with its key."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, FastPrimitivesCoder, VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, IntervalWindow, SlidingWindows
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.beam import keyed
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.portable.descriptor import describe
from tests.compiled import compile_pipeline
from tests.unit.harness.beam.keyed import Counts
from tests.unit.portable.pipelines import proto_of


class Everything(beam.DoFn):  # type: ignore[misc]
    VALUE = ReadModifyWriteStateSpec("value", VarIntCoder())
    BAG = BagStateSpec("bag", BytesCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    SET = SetStateSpec("set", VarIntCoder())
    LIST = OrderedListStateSpec("list", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        a_set: Any = beam.DoFn.StateParam(SET),
        a_list: Any = beam.DoFn.StateParam(LIST),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        value.write(pair[1])
        bag.add(bytes(10))
        total.add(pair[1])
        a_set.add(pair[1])
        a_list.add((Timestamp(pair[1]), pair[1]))
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def at_end(
        self,
        key: Any = beam.DoFn.KeyParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        a_set: Any = beam.DoFn.StateParam(SET),
        a_list: Any = beam.DoFn.StateParam(LIST),
    ) -> Iterator[Any]:
        yield (
            key,
            value.read(),
            len(list(bag.read())),
            total.read(),
            len(a_set.read()),
            [number for _, number in a_list.read()],
        )


@pytest.mark.parametrize("most_calls", [8192, 1, 2], ids=["never", "each time", "sometimes"])
def test_state_reads_as_written_however_often_it_is_handed_to_the_backend(
    running: Any, monkeypatch: pytest.MonkeyPatch, most_calls: int
) -> None:
    monkeypatch.setattr(keyed, "MAX_CALLS", most_calls)
    stage = running(Everything(), SlidingWindows(10, 5))
    windows = (IntervalWindow(0, 10), IntervalWindow(5, 15))
    for key in range(3):
        for number in (3, 1, 2):
            stage.push(key, [number], windows)
        stage.bundle.advance_key()
    stage.bundle.finish()
    expected = [(key, 2, 3, 6, 3, [1, 2, 3]) for key in range(3) for _ in windows]
    assert stage.out == expected
    assert [each.windows for each in stage.taken.elements[:2]] == [(each,) for each in windows]


@pytest.mark.parametrize("is_same", [True, False], ids=["the same object", "an equal one"])
def test_elements_of_a_key_may_alternate_between_any_number_of_windows(
    running: Any, is_same: bool
) -> None:
    stage = running(Everything(), FixedWindows(1))
    windows = [IntervalWindow(start, start + 1) for start in range(70)]
    again = windows if is_same else [IntervalWindow(start, start + 1) for start in range(70)]
    for number, laps in enumerate((windows, again, windows)):
        for window in laps:
            stage.push(1, [number], (window,))
    stage.bundle.advance_key()
    stage.bundle.finish()
    assert stage.out == [(1, 2, 3, 3, 3, [0, 1, 2])] * 70
    assert [each.windows for each in stage.taken.elements] == [(each,) for each in windows]


def test_nothing_is_left_of_a_key(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "MAX_CALLS", 5)
    stage = running(Everything())
    states, handler = stage.operation.states, stage.stage._state
    for key in range(100):
        stage.key(key, list(range(7)))
        assert not states._all_states
        assert not len(states.timers)
        assert not handler._written_keys
        assert not handler._backend._keys
    assert states._known_expiry_us.cache_info().currsize == 1
    stage.bundle.finish()
    assert len(stage.out) == 100


def piles(state: Any, wrap: Callable[[int], Any], length: Callable[[Any], int]) -> beam.DoFn:
    """Return a DoFn that adds values to a state, each with a payload of a given length."""

    class Piles(beam.DoFn):  # type: ignore[misc]
        END = TimerSpec("end", TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[int, int],
            window: Any = beam.DoFn.WindowParam,
            pile: Any = beam.DoFn.StateParam(state),
            end: Any = beam.DoFn.TimerParam(END),
        ) -> None:
            pile.add(wrap(pair[1]))
            end.set(window.end)

        @on_timer(END)  # type: ignore[untyped-decorator]
        def at_end(self, pile: Any = beam.DoFn.StateParam(state)) -> Iterator[list[int]]:
            yield sorted(map(length, pile.read()))

    return Piles()


ANY = FastPrimitivesCoder()


@pytest.mark.parametrize(
    "do_fn",
    [
        piles(BagStateSpec("pile", BytesCoder()), bytes, len),
        piles(BagStateSpec("pile", ANY), lambda n: ("name", [bytes(n)]), lambda x: len(x[1][0])),
        piles(BagStateSpec("pile", ANY), lambda n: {"name": "x" * n}, lambda x: len(x["name"])),
        piles(
            OrderedListStateSpec("pile", ANY),
            lambda n: (Timestamp(n), (bytes(n),)),
            lambda x: len(x[1][0]),
        ),
        piles(SetStateSpec("pile", ANY), lambda n: (bytes(n),), lambda x: len(x[0])),
    ],
    ids=["bytes", "pairs", "dicts", "an ordered list", "a set"],
)
def test_long_values_are_handed_to_the_backend_early(
    running: Any, monkeypatch: pytest.MonkeyPatch, do_fn: beam.DoFn
) -> None:
    monkeypatch.setattr(keyed, "MAX_BYTES", 10_000)
    stage = running(do_fn)
    held = []
    lengths = range(3_000, 3_020)
    for length in lengths:
        stage.push(1, [length])
        held.append(stage.operation.states.piled_bytes)
    assert max(held) < 10_000
    assert held.count(0) == 5
    stage.bundle.advance_key()
    stage.key(2, [3_000])
    stage.bundle.finish()
    assert stage.out == [[*lengths], [3_000]]


def test_the_next_bundle_knows_nothing_of_the_last_one(running: Any) -> None:
    stage = running(Everything())
    stage.key(1, [5, 6])
    stage.bundle.finish()
    stage.bundle = stage.start()
    stage.key(1, [7])
    stage.bundle.finish()
    assert stage.out == [(1, 6, 2, 11, 2, [5, 6]), (1, 7, 1, 7, 1, [7])]


@pytest.mark.parametrize(
    ("do_fn", "kind", "name", "asked"),
    [
        (Everything(), "state_specs", "bag", "state 'bag'"),
        (Everything(), "timer_family_specs", "ts-end", "timer 'end'"),
        # The stage is not keyed then.
        (Counts(), "timer_family_specs", "ts-due", "timer 'due'"),
    ],
)
def test_what_the_proto_does_not_declare(
    do_fn: beam.DoFn, kind: str, name: str, asked: str
) -> None:
    """An SDK's mistake, or an old pickle."""

    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[int, Any])
        pairs | "keyed" >> beam.ParDo(do_fn)

    proto = proto_of(build)
    (step,) = (each for each in proto.components.transforms.values() if each.unique_name == "keyed")
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    del getattr(payload, kind)[name]
    step.spec.payload = payload.SerializeToString()
    plan = compile_pipeline(proto)
    (id_,) = (
        id_
        for id_, stage in plan.stages.items()
        if any(plan.graph.transforms[each].name == "keyed" for each in stage.transforms)
    )
    with pytest.raises(BundleFailedError, match=f"^keyed: .*asks for the {asked}, which its proto"):
        EmbeddedStage("stage", describe(plan, id_))


class Largest(beam.DoFn):  # type: ignore[misc]
    """Reads between what it adds: Beam's own CombineFn reorders its accumulator then."""

    TOP = CombiningValueStateSpec("top", beam.combiners.TopCombineFn(2))

    def process(self, pair: Any, top: Any = beam.DoFn.StateParam(TOP)) -> Iterator[list[int]]:
        top.add(pair[1])
        yield list(top.read())


def test_a_combiner_is_read_between_two_inputs(running: Any) -> None:
    stage = running(Largest())
    stage.key(1, [5, 9, 7, 8, 1])
    stage.key(2, [1])
    stage.bundle.finish()
    assert stage.out == [[5], [9, 5], [9, 7], [9, 8], [9, 8], [1]]
