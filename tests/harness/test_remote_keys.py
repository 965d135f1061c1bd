"""State and timers on Beam's own SDK harness: keys come, their timers fire, they are forgotten."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.transforms.environments import ExternalEnvironment, ProcessEnvironment
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.bundle import Bundle
from beam_spark_runner.harness.fn_api.services import state_service as state_module
from beam_spark_runner.harness.remote import keyed_bundle
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.state import memory
from tests.harness.conftest import Collected, stage_in
from tests.stateful import Fails

pytestmark = pytest.mark.grpc


class Running:
    """A bundle of the keyed stage of a pipeline."""

    def __init__(self, environment: Any, do_fn: beam.DoFn) -> None:
        def build(p: beam.Pipeline) -> Any:
            pair = beam.Map(lambda x: (x, x)).with_output_types(tuple[bytes, bytes])
            step = beam.ParDo(do_fn).with_output_types(bytes)
            return p | beam.Impulse() | pair | "keyed" >> step | beam.Reshuffle()

        self.collected = Collected()
        self.stage: RemoteStage = stage_in(environment, build, stage=1)
        self.bundle: Bundle = self.stage.start_bundle(
            dict.fromkeys(self.stage.output_coders, self.collected), {}
        )

    def push(self, key: bytes, *values: bytes, time: float = 0) -> None:
        pairs = [(key, value) for value in values]
        windows = (GlobalWindow(),)
        self.bundle.push(pairs, [WindowedValue(pair, Timestamp(time), windows) for pair in pairs])

    def key(self, key: bytes, *values: bytes) -> None:
        """All there is of a key."""
        self.push(key, *values)
        self.bundle.advance_key()

    def finish(self) -> list[bytes]:
        self.bundle.finish()
        return sorted(self.collected.values)


@pytest.fixture
def running(beam_pool: str) -> Callable[[beam.DoFn], Running]:
    return lambda do_fn: Running(ExternalEnvironment(beam_pool), do_fn)


@pytest.fixture
def running_ours() -> Iterator[Callable[[beam.DoFn], Running]]:
    """On a harness that has this package."""
    yield lambda do_fn: Running(ProcessEnvironment(""), do_fn)
    sdk_harnesses.stop()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> "Counter[str]":
    """How often the SDK has asked for what."""
    asked: Counter[str] = Counter()
    answer = state_module.BundleState.answer

    def count(self: Any, request: beam_fn_api_pb2.StateRequest) -> Any:
        asked[request.WhichOneof("request")] += 1
        return answer(self, request)

    monkeypatch.setattr(state_module.BundleState, "answer", count)
    return asked


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK bundle for each two calls."""
    monkeypatch.setattr(keyed_bundle, "MAX_CALLS", 2)


class Adds(beam.DoFn):  # type: ignore[misc]
    SUM = CombiningValueStateSpec("sum", sum)

    def process(
        self, pair: tuple[bytes, bytes], total: Any = beam.DoFn.StateParam(SUM)
    ) -> Iterator[bytes]:
        total.add(len(pair[1]))
        yield b"%s%d" % (pair[0], total.read())


@pytest.mark.usefixtures("few_calls")
def test_a_key_that_takes_several_bundles_keeps_its_state(
    running: Callable[..., Running], requests: "Counter[str]"
) -> None:
    keyed = running(Adds())
    for _ in range(3):
        keyed.push(b"a", b"1", b"12")
    keyed.bundle.advance_key()
    keyed.key(b"b", b"1")
    assert keyed.finish() == [b"a1", b"a3", b"a4", b"a6", b"a7", b"a9", b"b1"]
    # What a bundle before has read or written is not asked for again.
    assert requests["get"] == 2


@pytest.mark.usefixtures("few_calls")
def test_a_key_that_comes_again_after_its_end_begins_again(running: Callable[..., Running]) -> None:
    """Its first work is done, and its state forgotten, here and in the SDK's cache."""
    keyed = running(Adds())
    for _ in range(3):
        keyed.key(b"a", b"1", b"1")
    assert keyed.finish() == [b"a1"] * 3 + [b"a2"] * 3


class Wakes(beam.DoFn):  # type: ignore[misc]
    """Sets a timer that sets itself until it has fired as often as the element is long."""

    LEFT = ReadModifyWriteStateSpec("left", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[bytes, bytes],
        left: Any = beam.DoFn.StateParam(LEFT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        left.write(len(pair[1]))
        due.set(1)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        left: Any = beam.DoFn.StateParam(LEFT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[bytes]:
        yield b"%s@%d" % (key, int(time))
        left.write(left.read() - 1)
        if left.read():
            due.set(time + 10)


def test_timers_fire_until_none_is_left_without_asking_for_what_is_known(
    running: Callable[..., Running], requests: "Counter[str]"
) -> None:
    keyed = running(Wakes())
    keyed.key(b"a", b"...")
    keyed.key(b"b", b".")
    keyed.key(b"c", b"..")
    assert keyed.finish() == [b"a@1", b"a@11", b"a@21", b"b@1", b"c@1", b"c@11"]
    assert requests["get"] == 0  # ``write`` has told the SDK all that there is


@pytest.mark.usefixtures("few_calls")
def test_timers_of_a_key_wait_for_its_last_element(running: Callable[..., Running]) -> None:
    keyed = running(Wakes())
    for _ in range(3):
        keyed.push(b"a", b"..")
    assert keyed.collected.values == []
    keyed.bundle.advance_key()
    assert keyed.finish() == [b"a@1", b"a@11"]


class Hoards(beam.DoFn):  # type: ignore[misc]
    """Reads its bag before it adds to it, and again at the end."""

    BAG = BagStateSpec("bag", BytesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[bytes, bytes],
        bag: Any = beam.DoFn.StateParam(BAG),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[bytes]:
        yield b"%d" % sum(1 for _ in bag.read())
        bag.add(pair[1])
        end.set(1)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def at_end(self, bag: Any = beam.DoFn.StateParam(BAG)) -> Iterator[bytes]:
        yield b"in the end %d" % sum(1 for _ in bag.read())


@pytest.mark.usefixtures("few_calls")
def test_a_bag_of_many_pages_is_read_to_its_present_end(
    running: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK keeps the first page, and where the others were: not what was added since."""
    monkeypatch.setattr(
        memory.MemoryState.__init__,
        "__kwdefaults__",
        {"limit_bytes": memory.MEMORY_LIMIT_BYTES, "page_bytes": 3},
    )
    keyed = running(Hoards())
    for _ in range(5):
        keyed.push(b"a", b"1")
        keyed.push(b"a", b"2")
    keyed.bundle.advance_key()
    assert keyed.finish() == sorted([*(b"%d" % n for n in range(10)), b"in the end 10"])


def test_what_a_timer_raises_names_the_step(running: Callable[..., Running]) -> None:
    keyed = running(Fails())
    keyed.key(b"a", b"1")
    with pytest.raises(BundleFailedError, match="LookupError: no such alarm") as raised:
        keyed.finish()
    assert raised.value.step == "keyed"
    keyed.bundle.abort()


def test_a_harness_that_has_this_package_keeps_keys_by_itself(
    running_ours: Callable[..., Running], requests: "Counter[str]"
) -> None:
    keyed = running_ours(Adds())
    for number in range(3000):
        keyed.push(b"%d:" % number, b"1")
        keyed.push(b"%d:" % number, b"12")
        keyed.bundle.advance_key()
    keyed.push(b"large:", *[b"1"] * 20_000)
    keyed.bundle.advance_key()
    expected = [b"%d:%d" % (key, size) for key in range(3000) for size in (1, 3)]
    assert keyed.finish() == sorted(expected + [b"large:%d" % n for n in range(1, 20_001)])
    assert not requests


def test_timers_in_a_harness_that_has_this_package(running_ours: Callable[..., Running]) -> None:
    keyed = running_ours(Wakes())
    keyed.key(b"a", b"...")
    keyed.key(b"b", b".")
    keyed.key(b"a", b"..")
    assert keyed.finish() == sorted([b"a@1", b"a@11", b"a@21", b"b@1", b"a@1", b"a@11"])


def test_what_a_timer_raises_in_a_harness_that_has_this_package(
    running_ours: Callable[..., Running],
) -> None:
    keyed = running_ours(Fails())
    keyed.key(b"a", b"1")
    with pytest.raises(BundleFailedError, match="LookupError: no such alarm") as raised:
        keyed.finish()
    assert raised.value.step == "keyed"
    keyed.bundle.abort()
