"""Keys that outlive a bundle on an SDK harness: what is stored, a later bundle finds."""

from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, FastPrimitivesCoder, VarIntCoder, registry
from apache_beam.transforms.environments import ExternalEnvironment, ProcessEnvironment
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import SteppedInput, StoringInput
from beam_spark_runner.harness.remote import keyed_bundle
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.harness.conftest import Collected, stage_in
from tests.stateful import Remembers

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60)]
SECOND = 1_000_000
# What the runner itself does not decode.
VALUE = VarIntCoder()
OUTPUT = FastPrimitivesCoder()


class Epochs:
    """Bundles of the keyed stage of a pipeline, one after the other, on one store."""

    def __init__(self, environment: Any) -> None:
        def build(p: beam.Pipeline) -> Any:
            pair = beam.Map(lambda x: (x, len(x))).with_output_types(tuple[bytes, int])
            step = beam.ParDo(Remembers()).with_output_types(Any)
            return p | beam.Impulse() | pair | "keyed" >> step | beam.Reshuffle()

        self.stage: RemoteStage = stage_in(environment, build, stage=1)
        self.store = MemoryState(lambda *_: 1)
        self.begun = 0

    def run(self, to: Instant, **elements: int) -> list[Any]:
        """Process one element for each of a few keys; return the output, sorted."""
        collected = Collected()
        bundle = self.stage.start_bundle(
            dict.fromkeys(self.stage.output_coders, collected), {}, KeyPolicy(to, self.store)
        )
        for key, value in elements.items():
            pair = (key.encode(), VALUE.encode(value))
            bundle.push([pair], [WindowedValue(pair, Timestamp(0), (GlobalWindow(),))])
            bundle.advance_key()
        bundle.finish()
        return sorted(map(OUTPUT.decode, collected.values), key=repr)

    def fire(self, to: Instant, batch: int, keys: str) -> list[Any]:
        """Fire what is due of some keys, in order, until that is interrupted after a batch.

        Sets ``begun`` to the number of keys that had their turn.
        """
        self.begun = 0
        collected, interruption = Collected(), Interruption(lambda: 1, 0, batch)
        bundle = self.stage.start_bundle(
            dict.fromkeys(self.stage.output_coders, collected),
            {},
            KeyPolicy(to, self.store, interruption=interruption),
        )
        keyed = cast("StoringInput", bundle)
        for key in keys:
            if interruption.is_over():
                break
            keyed.begin_key(BytesCoder().get_impl().encode_nested(key.encode()))
            keyed.advance_key()
            self.begun += 1
        bundle.finish()
        return list(map(OUTPUT.decode, collected.values))

    def step(self, to: Instant, **keys: list[tuple[int, int]]) -> tuple[list[Any], int]:
        """Process elements of a few keys, their timers in between.

        Args:
            to: how far time advances.
            keys: of each, moments in seconds, and the element of each.

        Returns:
            The output, and in how many bundles it was made.
        """
        collected, bundles = Collected(), 0
        start = self.stage._start

        def counting_start(*args: Any, **kwargs: Any) -> Any:
            nonlocal bundles
            bundles += 1
            return start(*args, **kwargs)

        self.stage._start = counting_start  # type: ignore[method-assign]
        bundle = self.stage.start_bundle(
            dict.fromkeys(self.stage.output_coders, collected), {}, KeyPolicy(to, self.store)
        )
        keyed = cast("SteppedInput", bundle)
        for key, moments in keys.items():
            keyed.begin_key(BytesCoder().get_impl().encode_nested(key.encode()))
            for time_s, value in moments:
                keyed.fire_until(time_s * SECOND - 1)
                pair = (key.encode(), VALUE.encode(value))
                keyed.push([pair], [WindowedValue(pair, Timestamp(time_s), (GlobalWindow(),))])
            keyed.advance_key()
        bundle.finish()
        self.stage._start = start  # type: ignore[method-assign]
        return list(map(OUTPUT.decode, collected.values)), bundles


@pytest.fixture(params=["Beam's harness", "a harness that has this package"])
def environment(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "Beam's harness":
        yield ExternalEnvironment(request.getfixturevalue("beam_pool"))
        return
    yield ProcessEnvironment("")
    sdk_harnesses.stop()


@pytest.fixture
def epochs(environment: Any) -> Epochs:
    return Epochs(environment)


def until(watermark_s: int, clock_s: int = 0) -> Instant:
    return Instant(watermark_s * SECOND, clock_s * SECOND)


def test_state_and_timers_of_earlier_bundles(epochs: Epochs) -> None:
    assert epochs.run(until(0), a=3, b=4) == [
        (b"a", None, [3], 3, [1], [3]),
        (b"b", None, [4], 4, [0], [4]),
    ]
    assert epochs.run(until(3), b=5) == [(b"b", 4, [4, 5], 9, [0, 1], [4, 5])]
    # The timer of ``b`` was set again, and its clock has come to 500 s.
    assert epochs.run(until(4, 500), a=6) == [(b"a", 3, [3, 6], 9, [0, 1], [3, 6])]
    assert epochs.run(until(5, 400), b=1) == [
        ("clock", b"b"),
        ("event", b"b", 1, "tag", 10),
        (b"b", 5, [1, 4, 5], 10, [0, 1], [1, 4, 5]),
    ]
    assert epochs.run(until(9), b=2) == [
        ("event", b"b", 2, "tag", 12),
        (b"b", 1, [1, 2, 4, 5], 12, [0, 1], [1, 2, 4, 5]),
    ]
    assert epochs.run(END_OF_TIME, a=7) == [
        ("clock", b"a"),
        ("event", b"a", 7, "tag", 16),
        (b"a", 6, [3, 6, 7], 16, [0, 1], [3, 6, 7]),
    ]
    assert epochs.run(END_OF_TIME, c=1) == [
        ("clock", b"c"),
        ("event", b"c", 1, "tag", 1),
        (b"c", None, [1], 1, [1], [1]),
    ]


def test_what_is_cleared_is_not_found_by_a_later_bundle(epochs: Epochs) -> None:
    epochs.run(until(0), a=3)
    epochs.run(until(0), a=0)
    seen = (b"a", None, [0, 3, 4], 7, [0, 1], [0, 3, 4])
    assert epochs.run(until(4, 300), a=4) == [("event", b"a", 4, "tag", 7), seen]


def test_many_groups_of_keys(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_bundle, "MAX_CALLS", 2)
    keys = "abcdefg"
    for watermark_s, times, before in ((0, 1, None), (8, 2, 9), (9, 3, 9)):
        nines = [9] * times
        expected: list[Any] = [(key.encode(), before, nines, 9 * times, [1], nines) for key in keys]
        if watermark_s == 9:
            expected += [("event", key.encode(), 9, "tag", 9 * times) for key in keys]
        found = epochs.run(until(watermark_s), **dict.fromkeys(keys, 9))
        assert found == sorted(expected, key=repr)


def test_firing_is_interrupted_between_two_batches(epochs: Epochs) -> None:
    keys = "abcde"
    epochs.run(until(0), **dict.fromkeys(keys, 3))
    fired: list[list[str]] = []
    while keys:
        out = epochs.fire(until(50), 2, keys)
        assert {(kind, number) for kind, _, number, *_ in out} == {("event", 3)}
        fired.append(sorted(key.decode() for _, key, *_ in out))
        keys = keys[len(out) :]
    assert fired == [["a", "b"], ["c", "d"], ["e"]]
    assert epochs.fire(until(50), 2, "abcde") == []


def test_the_end_of_windows_is_interrupted_between_two_batches(epochs: Epochs) -> None:
    """What is stored of windows that have expired is deleted, without any timer of the DoFn."""
    keys = "abcde"
    epochs.run(until(0), **dict.fromkeys(keys, 3))
    epochs.run(until(50, 900), **dict.fromkeys(keys, 0))  # all timers fire; the state is cleared
    epochs.run(until(60, 900), **dict.fromkeys(keys, 3))
    turns = []
    while keys:
        epochs.fire(Instant(MAX_US, 900 * SECOND), 2, keys)
        turns.append(epochs.begun)
        keys = keys[epochs.begun :]
    assert turns == [2, 2, 1]


@pytest.mark.parametrize("most_calls", [2, 8192])
def test_elements_and_timers_in_one_order(
    epochs: Epochs, monkeypatch: pytest.MonkeyPatch, most_calls: int
) -> None:
    monkeypatch.setattr(keyed_bundle, "MAX_CALLS", most_calls)
    epochs.run(until(0), a=2, c=9)
    moments = [(3, 4), (5, 9), (7, 8), (11, 20)]
    out, bundles = epochs.step(until(12), a=moments, b=moments[1:], c=moments[3:])

    def story(key: bytes) -> list[Any]:
        return [each[2] if each[0] == "event" else "element" for each in out if key in each]

    # The timer for 9 s is set again at 7 s, for 8 s; the last one, for 20 s, is not due.
    assert story(b"a") == [2, "element", 4, "element", "element", 8, "element"]
    assert story(b"b") == ["element", "element", 8, "element"]
    assert story(b"c") == [9, "element"]
    if most_calls > 2:
        assert bundles <= 9  # for all keys together: two for each moment, and the last timers


@pytest.mark.parametrize(
    ("key", "type_"),
    [
        (7, int),
        ("seven", str),
        (b"seven", bytes),
        (("a", "b"), tuple[str, str]),
        ((1, None), Any),
    ],
    ids=["int", "str", "bytes", "tuple", "any"],
)
def test_the_end_of_time_leaves_no_state_of_keys_of_any_coder(
    environment: Any, key: object, type_: Any
) -> None:
    """SDK and runner have to encode the key in the same way, or it is another key to each."""

    def build(p: beam.Pipeline) -> Any:
        pair = beam.Map(lambda x: (key, len(x))).with_output_types(tuple[type_, int])
        step = beam.ParDo(Remembers()).with_output_types(Any)
        return p | beam.Impulse() | pair | "keyed" >> step | beam.Reshuffle()

    stage = stage_in(environment, build, stage=1)
    store = MemoryState(lambda *_: 1)
    pair = (registry.get_coder(type_).encode(key), VALUE.encode(5))
    for to in (until(0), END_OF_TIME):
        bundle = stage.start_bundle(
            dict.fromkeys(stage.output_coders, Collected()), {}, KeyPolicy(to, store)
        )
        bundle.push([pair], [WindowedValue(pair, Timestamp(0), (GlobalWindow(),))])
        bundle.advance_key()
        bundle.finish()
        assert any(store._keys.values()) == (to != END_OF_TIME)
