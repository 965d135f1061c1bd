"""Groups in a harness that has this package: they come as columns."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder, VarIntCoder
from apache_beam.transforms.environments import (
    ExternalEnvironment,
    ProcessEnvironment,
    python_sdk_capabilities,
)

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.values.spilled_group import StreamedValues, ValueLogs
from tests.harness.conftest import BARE, Collected, run_bundle, stage_in

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]
COUNT = 3000


class Large(Fraction):
    """More in memory than its pickle shows."""

    def __new__(cls, *parts: int) -> Any:
        made: Any = super().__new__(cls, *parts)
        made.content = bytes(1 << 20)
        return made

    def __reduce__(self) -> Any:
        return Large, (self.numerator, self.denominator)


@pytest.fixture
def process() -> Iterator[Any]:
    yield ProcessEnvironment("")
    sdk_harnesses.stop()


def test_groups_of_all_kinds(process: Any) -> None:
    """Small ones, one that is read from the state, and one whose values are decoded on demand."""

    def look(group: tuple[str, Any]) -> bytes:
        key, values = group
        return b"%r" % ((key, type(values).__name__, sum(values), sum(1 for _ in values)),)

    def build(p: beam.Pipeline) -> Any:
        pairs = p | beam.Impulse() | beam.Map(lambda x: (str(x), Fraction(len(x))))
        looked = pairs | beam.GroupByKey() | beam.Map(look).with_output_types(bytes)
        return looked | beam.Reshuffle()

    coded = FastPrimitivesCoder().encode
    logs = ValueLogs()
    streamed = StreamedValues(logs.new(), bytes, [coded(Fraction(1, 2))] * COUNT)
    stage = stage_in(process, build, stage=1)
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    groups = [
        (b"none", []),
        (b"small", [coded(1), coded(2)]),
        (b"large", streamed),
        (b"opaque", [coded(Large(n, 3)) for n in range(5)]),
        (b"reduced", [coded(Fraction(n, 3)) for n in range(5)]),
        (b"plain", [coded(n) for n in range(5)]),
    ]
    bundle.push(groups, [BARE] * len(groups))
    bundle.finish()
    assert collected.values == [
        b"('none', 'list', 0, 0)",
        b"('small', 'list', 3, 2)",
        b"('large', '_StateBackedIterable', Fraction(1500, 1), 3000)",
        b"('opaque', 'OpaqueValues', Fraction(10, 3), 5)",
        b"('reduced', 'OpaqueValues', Fraction(10, 3), 5)",
        b"('plain', 'list', 10, 5)",
    ]


def test_an_sdk_that_cannot_read_pages_gets_large_groups_at_once(beam_pool: str) -> None:
    """As the TypeScript SDK, which has no state-backed iterables."""
    capabilities = [each for each in python_sdk_capabilities() if "state_backed" not in each]
    environment = ExternalEnvironment(beam_pool, capabilities=capabilities)

    def look(group: tuple[str, Any]) -> bytes:
        return b"%r" % ((group[0], type(group[1]).__name__, sum(group[1])),)

    def build(p: beam.Pipeline) -> Any:
        pairs = p | beam.Impulse() | beam.Map(lambda x: (str(x), len(x)))
        looked = pairs | beam.GroupByKey() | beam.Map(look).with_output_types(bytes)
        return looked | beam.Reshuffle()

    coded = VarIntCoder().encode
    streamed = StreamedValues(ValueLogs().new(), bytes, [coded(2)] * COUNT)
    stage = stage_in(environment, build, stage=1)
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    bundle.push([(b"large", streamed), (b"small", [coded(1)])], [BARE] * 2)
    bundle.finish()
    assert collected.values == [b"('large', 'list', 6000)", b"('small', 'list', 1)"]


KEPT: list[Any] = []  # in the SDK harness


def test_a_group_that_is_kept_for_the_next_bundle_is_not_taken_for_one_of_that(
    process: Any,
) -> None:
    def look(group: tuple[str, Any]) -> bytes:
        KEPT.append(group[1])
        return b"%d" % sum(KEPT[0])

    def build(p: beam.Pipeline) -> Any:
        pairs = p | beam.Impulse() | beam.Map(lambda x: (str(x), Fraction(len(x))))
        looked = pairs | beam.GroupByKey() | "Look" >> beam.Map(look).with_output_types(bytes)
        return looked | beam.Reshuffle()

    coded = FastPrimitivesCoder().encode
    stage = stage_in(process, build, stage=1)
    logs, collected = ValueLogs(), Collected()
    for number in range(2):
        values = StreamedValues(logs.new(), bytes, [coded(Fraction(number + 1))] * COUNT)
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
        bundle.push([(b"key", values)], [BARE])
        if not number:
            bundle.finish()
            continue
        with pytest.raises(BundleFailedError, match="GroupClosedError: the values of") as raised:
            bundle.finish()
        bundle.abort()
        assert raised.value.step == "Look"
    assert collected.values == [b"%d" % COUNT]


class Counted:
    """Counts how many of its kind are referred to, in the SDK harness."""

    alive = 0

    def __init__(self, text: str) -> None:
        self.text = text
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1

    def __reduce__(self) -> Any:
        return Counted, (self.text,)


def test_what_user_code_yields_is_encoded_and_let_go(process: Any) -> None:
    def make(start: bytes) -> Iterator[tuple[bytes, Counted]]:
        for _ in range(100):
            yield b"key", Counted(f"{Counted.alive} before")

    def build(p: beam.Pipeline) -> Any:
        return p | beam.Impulse() | beam.FlatMap(make) | beam.GroupByKey()

    values = run_bundle(stage_in(process, build), [b""]).values
    assert len(values) == 100
    alive = {FastPrimitivesCoder().decode(coded).text for _, coded in values}
    assert alive <= {"0 before", "1 before"}
