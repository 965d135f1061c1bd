"""What the loop over epochs knows of a pipeline from a proto."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.driving.stream_rules import rules_of
from tests.compiled import compile_pipeline

TEXT, NUMBER = "beam:coder:string_utf8:v1", "beam:coder:varint:v1"
INTERVAL, GLOBAL = "beam:coder:interval_window:v1", "beam:coder:global_window:v1"


class Waits(beam.DoFn):  # type: ignore[misc]
    """Sets a timer."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: Any, rates: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(5)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fire(self) -> None: ...


def kept(key: str, window: str) -> str:
    """Return what a step stores whose timers are declared with some coders."""
    p = beam.Pipeline()
    rates = p | beam.Create([(1, 1)])
    pairs = p | Stream() | beam.Map(lambda each: each).with_output_types(tuple[str, int])
    windows = pairs | beam.WindowInto(FixedWindows(5))
    _ = windows | "Wait" >> beam.ParDo(Waits(), AsDict(rates))
    proto = p.to_runner_api()
    coders = proto.components.coders
    ids = {coder.spec.urn: id_ for id_, coder in coders.items()}
    (timer,) = (each for each in coders.values() if each.spec.urn == "beam:coder:timer:v1")
    timer.component_coder_ids[:] = [ids[key], ids[window]]
    rules = rules_of(compile_pipeline(proto, is_streaming=True), 2, {})
    return rules.version.plan["step Wait"].kept


@pytest.mark.parametrize(("key", "window"), [(NUMBER, GLOBAL), (TEXT, GLOBAL), (NUMBER, INTERVAL)])
def test_timers_may_be_declared_with_the_coders_of_a_side_input(key: str, window: str) -> None:
    """As Beam 2.77 does in some processes, and not in others: the checkpoint is the same."""
    assert kept(key, window) == kept(TEXT, INTERVAL)
