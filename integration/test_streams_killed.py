"""Streaming pipelines whose program is killed, and started again, until they are done."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.cli.programs import Program

KILLS = int(os.environ.get("STREAM_KILLS", "4"))
EVENTS = 12
PIPELINE = """
    from pathlib import Path
    from apache_beam.metrics import Metrics, MetricsFilter
    from apache_beam.testing.test_stream import TestStream
    from apache_beam.transforms.timeutil import TimeDomain
    from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
    from apache_beam.transforms.window import FixedWindows, TimestampedValue

    OUT = Path(os.environ["OUT"])

    def note(event):
        (OUT / f"event-{event}").touch()
        time.sleep(0.1)

    class Sum(beam.DoFn):
        TOTAL = CombiningValueStateSpec("total", sum)
        DUE = TimerSpec("due", TimeDomain.WATERMARK)

        def process(self, pair, total=beam.DoFn.StateParam(TOTAL), due=beam.DoFn.TimerParam(DUE),
                    window=beam.DoFn.WindowParam):
            note(pair[1])
            Metrics.counter("test", "seen").inc()
            total.add(pair[1])
            due.set(window.end)

        @on_timer(DUE)
        def flush(self, key=beam.DoFn.KeyParam, total=beam.DoFn.StateParam(TOTAL),
                  window=beam.DoFn.WindowParam):
            yield "all", (key, int(window.start), total.read())

    def write(group):
        for key, start, total in group[1]:
            (OUT / f"sum-{key}-{start}-{total}").touch()

    events = TestStream().with_output_types(beam.typehints.Tuple[str, int])
    for number in range(EVENTS):
        events.add_elements(
            [TimestampedValue((key, number), number) for key in "abc"]
        )
        if number % 4 == 3:
            events.advance_watermark_to(number + 1)
    events.advance_watermark_to_infinity()
    pipeline = beam.Pipeline(argv=OPTIONS)
    sums = pipeline | events | beam.WindowInto(FixedWindows(4)) | beam.ParDo(Sum())
    sums | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey() | beam.Map(write)
    result = pipeline.run()
    result.wait_until_finish()
    (counter,) = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
    print("seen", counter.committed)
    """


def expected_sums() -> set[str]:
    return {
        f"sum-{key}-{start}-{sum(range(start, start + 4))}"
        for key in "abc"
        for start in range(0, EVENTS, 4)
    }


@pytest.mark.timeout(60 * (KILLS + 2))
@pytest.mark.parametrize("seed", range(1))
def test_kills_at_any_moment_change_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    out = tmp_path / "out"
    out.mkdir()
    flags = ["--spark_master_url=local[2]", f"--checkpoint_dir={tmp_path / 'checkpoints'}"]
    script = PIPELINE.replace("range(EVENTS)", f"range({EVENTS})")
    for number in range(KILLS):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        program = Program(folder, script, *flags, OUT=str(out))
        program.wait_for(out / f"event-{chance.randrange(EVENTS)}")
        time.sleep(chance.random())  # the moment is chance's
        program.send(signal.SIGKILL)
        program.end(60)
    folder = tmp_path / "last"
    folder.mkdir()
    ended = Program(folder, script, *flags, OUT=str(out)).end(120)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"seen {3 * EVENTS}"
    assert {path.name for path in out.glob("sum-*")} == expected_sums()
