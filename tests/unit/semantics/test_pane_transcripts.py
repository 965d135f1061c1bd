"""Beam's own transcripts of triggers, played to the pane machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam.testing
import pytest
import yaml  # type: ignore[import-untyped]
from apache_beam.transforms import trigger, trigger_test, window
from apache_beam.transforms.core import Windowing
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.semantics.window_states import KeyWindows
from tests.unit.semantics.strategies import strategy_of

_TRANSCRIPTS = Path(apache_beam.testing.__file__).with_name("data") / "trigger_transcripts.yaml"
_NAMES = {**vars(trigger), **vars(window), **vars(trigger_test), "Default": trigger.DefaultTrigger}
_DEFAULTS = {"accumulation_mode": "accumulating", "timestamp_combiner": "OUTPUT_AT_EOW"}


def _specs() -> Iterator[Any]:
    for number, spec in enumerate(yaml.safe_load_all(_TRANSCRIPTS.read_text())):
        if not spec["name"].startswith(("bad_", "missing_")):  # these test the test itself
            yield pytest.param(spec, id=f"{spec['name']}-{number}")


def _windowing(spec: dict[str, Any]) -> Windowing:
    spec = _DEFAULTS | spec
    combiner = getattr(window.TimestampCombiner, spec["timestamp_combiner"])
    return Windowing(
        eval(spec["window_fn"], _NAMES),
        eval(spec["trigger_fn"], _NAMES)
        if spec["trigger_fn"] != "Default"
        else trigger.DefaultTrigger(),
        getattr(trigger.AccumulationMode, spec["accumulation_mode"].upper()),
        combiner,
        spec.get("allowed_lateness", 0),
    )


def _facts(pane: WindowedValue) -> dict[str, Any]:
    (its_window,) = pane.windows
    info = pane.pane_info
    return {
        "window": [int(its_window.start), int(its_window.max_timestamp())],
        "values": sorted(pane.value),
        "timestamp": int(pane.timestamp),
        "index": info.index,
        "nonspeculative_index": info.nonspeculative_index,
        "early": info.timing == PaneInfoTiming.EARLY,
        "late": info.timing == PaneInfoTiming.LATE,
        "final": info.is_last,
    }


@pytest.mark.parametrize("spec", list(_specs()))
def test_transcript(spec: dict[str, Any]) -> None:
    windowing = _windowing(spec)
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    now = Instant(MIN_US, 0)
    panes: list[dict[str, Any]] = []
    for event in spec["transcript"]:
        ((action, given),) = event.items()
        match action:
            case "input":
                assert panes == []
                values = [
                    WindowedValue(
                        time,
                        time,
                        windowing.windowfn.assign(window.WindowFn.AssignContext(time, time)),
                    )
                    for time in given
                ]
                panes = list(map(_facts, machine.add(windows, values, now)))
            case "watermark":
                assert panes == []
                now = Instant(given * 1_000_000, now.clock_us)
                panes = list(map(_facts, machine.advance(windows, now)))
            case "expect":
                for expected in given:
                    alike = [pane for pane in panes if expected.items() <= pane.items()]
                    assert alike, (expected, panes)
                    panes.remove(alike[0])
            case "state":
                open_windows = {
                    (int(each.start), int(each.max_timestamp()))
                    for each, state in windows.items()
                    if not state.is_closed
                }
                assert open_windows >= {tuple(each) for each in given["present"]}
                assert not open_windows & {tuple(each) for each in given["tombstone"]}
    assert panes == []
