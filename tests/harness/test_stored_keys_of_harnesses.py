"""Keys that outlive a bundle on an SDK harness: what is stored, a later bundle finds."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.transforms.environments import ExternalEnvironment, ProcessEnvironment
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.remote import keyed_bundle
from beam_spark_runner.harness.remote.sdk_workers import sdk_workers
from beam_spark_runner.harness.remote.stage import RemoteStage
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.harness.conftest import Collected, stage_in

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60)]
SECOND = 1_000_000


class Remembers(beam.DoFn):  # type: ignore[misc]
    """Yields all values of the key so far, and once more when a timer fires.

    A value is the time, in seconds, for which it sets the timer; that of the clock fires a
    hundred times as late.
    """

    BAG = BagStateSpec("bag", BytesCoder())
    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[bytes, bytes],
        bag: Any = beam.DoFn.StateParam(BAG),
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> Iterator[bytes]:
        key, value = pair
        bag.add(value)
        event.set(Timestamp(int(value)))
        clock.set(Timestamp(100 * int(value)))
        yield key + b":" + b"".join(sorted(bag.read()))

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def at(
        self, key: Any = beam.DoFn.KeyParam, bag: Any = beam.DoFn.StateParam(BAG)
    ) -> Iterator[bytes]:
        yield b"event of " + key + b":" + b"".join(sorted(bag.read()))

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def on_the_clock(self, key: Any = beam.DoFn.KeyParam) -> Iterator[bytes]:
        yield b"clock of " + key


class Epochs:
    """Bundles of the keyed stage of a pipeline, one after the other, on one store."""

    def __init__(self, environment: Any) -> None:
        def build(p: beam.Pipeline) -> Any:
            pair = beam.Map(lambda x: (x, x)).with_output_types(tuple[bytes, bytes])
            step = beam.ParDo(Remembers()).with_output_types(bytes)
            return p | beam.Impulse() | pair | "keyed" >> step | beam.Reshuffle()

        self.stage: RemoteStage = stage_in(environment, build, stage=1)
        self.store = MemoryState(lambda *_: 1)

    def run(self, to: Instant, **elements: bytes) -> list[bytes]:
        """Process elements of a few keys, each byte one; return the output, sorted."""
        collected = Collected()
        bundle = self.stage.start_bundle(
            dict.fromkeys(self.stage.output_coders, collected), {}, KeyPolicy(to, self.store)
        )
        for key, values in elements.items():
            pairs = [(key.encode(), bytes([value])) for value in values]
            origins = [WindowedValue(pair, Timestamp(0), (GlobalWindow(),)) for pair in pairs]
            for pair, origin in zip(pairs, origins, strict=True):
                bundle.push([pair], [origin])
            bundle.advance_key()
        bundle.finish()
        return sorted(collected.values)


@pytest.fixture(params=["Beam's harness", "a harness that has this package"])
def epochs(request: pytest.FixtureRequest) -> Iterator[Epochs]:
    if request.param == "Beam's harness":
        yield Epochs(ExternalEnvironment(request.getfixturevalue("beam_pool")))
        return
    yield Epochs(ProcessEnvironment(""))
    sdk_workers.stop()


def until(watermark_s: int, clock_s: int = 0) -> Instant:
    return Instant(watermark_s * SECOND, clock_s * SECOND)


def test_state_and_timers_of_earlier_bundles(epochs: Epochs) -> None:
    assert epochs.run(until(0), a=b"3", b=b"4") == [b"a:3", b"b:4"]
    assert epochs.run(until(3), b=b"5") == [b"b:45"]
    # The timer of ``b`` was set again, and its clock has come to 500 s.
    assert epochs.run(until(4, 500), a=b"6") == [b"a:36"]
    assert epochs.run(until(5, 400), b=b"1") == [b"b:145", b"clock of b", b"event of b:145"]
    assert epochs.run(until(9), b=b"2") == [b"b:1245", b"event of b:1245"]
    assert epochs.run(END_OF_TIME, a=b"7") == [b"a:367", b"clock of a", b"event of a:367"]
    assert epochs.run(END_OF_TIME, c=b"1") == [b"c:1", b"clock of c", b"event of c:1"]


def test_many_groups_of_keys(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_bundle, "MOST_CALLS", 2)
    keys = "abcdefg"
    epochs.run(until(0), **dict.fromkeys(keys, b"9"))
    assert epochs.run(until(8), **dict.fromkeys(keys, b"9")) == [
        f"{key}:99".encode() for key in keys
    ]
    due = epochs.run(until(9), **dict.fromkeys(keys, b"9"))
    assert due == sorted(
        text.encode() for key in keys for text in (f"{key}:999", f"event of {key}:999")
    )
