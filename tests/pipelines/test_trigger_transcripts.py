"""Beam's ``trigger_transcripts.yaml``: what a batch run can see of each, on Spark.

A batch run has every element before the watermark moves. So a transcript counts
up to its first late element; of the panes up to there, which depend on when the
elements come, each window's total counts: the last pane if panes accumulate,
else all of them together.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
import yaml  # type: ignore[import-untyped]
from apache_beam import testing
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import trigger, window
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import TimestampCombiner, TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from tests.harvest import Harvest, Kept, harvest, harvest_on

TRANSCRIPTS = Path(testing.__file__).parent / "data" / "trigger_transcripts.yaml"


class CustomTimestampingFixedWindowsWindowFn(window.FixedWindows):  # type: ignore[misc]
    """What the transcripts call by this name."""

    def get_transformed_output_time(self, window: Any, input_timestamp: Timestamp) -> Timestamp:
        return input_timestamp + 100


NAMES = {
    **vars(window),
    **vars(trigger),
    "Default": trigger.DefaultTrigger,
    CustomTimestampingFixedWindowsWindowFn.__name__: CustomTimestampingFixedWindowsWindowFn,
}


class Transcript(NamedTuple):
    """The part of a transcript that a batch run can see."""

    windowing: Mapping[str, Any]  # of WindowInto
    inputs: list[int]  # the elements are their timestamps, in seconds
    panes: list[Mapping[str, Any]]  # expected
    left: Mapping[tuple[int, int], list[int]]  # by window: what no trigger has fired
    is_wrong: bool

    @property
    def accumulates(self) -> bool:
        return bool(self.windowing["accumulation_mode"] == AccumulationMode.ACCUMULATING)


def _read(spec: Mapping[str, Any]) -> Transcript:
    inputs: list[int] = []
    panes: list[Mapping[str, Any]] = []
    window_fn = _called(spec.get("window_fn", "GlobalWindows"))
    watermark = MIN_TIMESTAMP
    for line in spec["transcript"]:
        ((action, params),) = line.items()
        if action == "watermark":
            watermark = params
            if window_fn.is_merging():
                panes.clear()  # early ones are of windows that merge away
        elif action == "input":
            if any(time <= watermark for time in params):
                break
            inputs += params
        elif action == "expect":
            panes += params
    combiner = spec.get("timestamp_combiner", "OUTPUT_AT_EOW")
    mode = spec.get("accumulation_mode", "ACCUMULATING")
    return Transcript(
        windowing={
            "windowfn": window_fn,
            "trigger": _called(spec.get("trigger_fn", "Default")),
            "accumulation_mode": getattr(AccumulationMode, mode.upper()),
            "timestamp_combiner": getattr(TimestampCombiner, combiner.upper()),
            "allowed_lateness": spec.get("allowed_lateness", 0),
        },
        inputs=inputs,
        panes=panes,
        # The transcripts end before that window closes.
        left={(20, 29): [25]} if spec["name"] == "garbage_collection" else {},
        is_wrong="error" in spec,
    )


def _called(text: str) -> Any:
    """They are written in Python; a constructor without arguments needs no brackets."""
    value = eval(text, NAMES)
    return value() if isinstance(value, type) else value


def _transcripts() -> Iterator[tuple[str, Transcript]]:
    with TRANSCRIPTS.open() as file:
        for number, spec in enumerate(yaml.safe_load_all(file)):
            transcript = _read(spec)
            combiner = transcript.windowing["timestamp_combiner"]
            # The proto has no such combiner, so that no portable runner ever meets it.
            if combiner == TimestampCombiner.OUTPUT_AT_EARLIEST_TRANSFORMED:
                continue
            if transcript.inputs:
                yield f"{number} {spec['name']}", transcript


ALL = dict(_transcripts())


def _build(p: beam.Pipeline) -> dict[str, Any]:
    made = {}
    for name, transcript in ALL.items():
        timed = (
            p
            | f"make {name}" >> beam.Create(transcript.inputs)
            | f"time {name}" >> beam.Map(lambda t: TimestampedValue(("key", t), t))
            | f"into {name}" >> beam.WindowInto(**transcript.windowing)
        )
        made[f"{name} grouped"] = (
            timed
            | f"group {name}" >> beam.GroupByKey()
            | f"values {name}" >> beam.MapTuple(lambda _, values: sorted(values))
        )
        made[f"{name} combined"] = (
            timed
            | f"combine {name}" >> beam.CombinePerKey(beam.combiners.ToListCombineFn())
            | f"combined {name}" >> beam.MapTuple(lambda _, values: sorted(values))
        )
    return made


def _check(transcript: Transcript, kept: list[Kept]) -> None:
    expected: dict[tuple[int, int], dict[str, Any]] = {}
    for pane in transcript.panes:
        total = expected.setdefault(tuple(pane["window"]), {})
        if "values" in pane:
            before = [] if transcript.accumulates else total.get("values", [])
            total["values"] = sorted(before + pane["values"])
        total["timestamp"] = pane.get("timestamp")
    for bounds, values in transcript.left.items():
        expected[bounds] = {"values": values}
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for each in sorted(kept, key=lambda each: each.pane.index):
        bounds = (int(each.window.start), int(each.window.max_timestamp()))
        total = found.setdefault(bounds, {})
        before = [] if transcript.accumulates else total.get("values", [])
        total["values"] = sorted(before + each.value)
        total["timestamp"] = int(each.timestamp)
    assert found.keys() == expected.keys()
    for bounds, total in expected.items():
        for fact, value in total.items():
            if value is not None:
                assert found[bounds][fact] == value, (bounds, fact)


@pytest.fixture(scope="module")
def ours(spark_session: Any) -> Harvest:
    return harvest(spark_session, _build, "--allow_unsafe_triggers")


@pytest.mark.parametrize("kind", ["grouped", "combined"])
@pytest.mark.parametrize(
    "name", [name for name, each in ALL.items() if each.panes or each.is_wrong]
)
def test_transcripts(ours: Harvest, name: str, kind: str) -> None:
    if not ALL[name].is_wrong:
        _check(ALL[name], ours.kept[f"{name} {kind}"])
        return
    with pytest.raises(AssertionError):
        _check(ALL[name], ours.kept[f"{name} {kind}"])


def test_every_pane_is_that_of_beams_own_runner(ours: Harvest) -> None:
    beams = harvest_on(FnApiRunner(), _build, "--allow_unsafe_triggers")
    assert len(beams.kept) >= 2 * 10
    for label, kept in beams.kept.items():
        left = ALL[label.rpartition(" ")[0]].left.values()  # Beam drops it
        fired = [each for each in ours.kept[label] if each.value not in left]
        assert _panes(fired) == _panes(kept), label
        assert kept, label


def _panes(kept: list[Kept]) -> list[tuple[Any, ...]]:
    return sorted(
        (str(each.window), each.pane.index, each.pane.timing, each.value, int(each.timestamp))
        for each in kept
    )
