"""The line that says how far a streaming pipeline is."""

import pytest

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.observing.epoch_status import EpochStatus, StepStatus
from beam_spark_runner.observing.stream_line import StreamLine

NOW_US = 1_000_000_000


def text(status: EpochStatus | None) -> str:
    return " · ".join(StreamLine().parts(status, now_us=NOW_US, elements=0, now_s=0.0))


def step(
    output_us: int, restrictions: int | None = None, backlog: float | None = None
) -> StepStatus:
    return StepStatus(
        input_us=MAX_US, output_us=output_us, restrictions=restrictions, backlog=backlog
    )


@pytest.mark.parametrize(
    ("output_us", "said"),
    [
        (MIN_US, "watermark at the beginning of time (Read)"),
        (NOW_US - 90_000_000, "watermark 1 min 30 s behind (Read)"),
        (NOW_US + 5_000_000, "watermark -5 s behind (Read)"),
        (MAX_US, "watermark at the end of time"),
    ],
)
def test_the_watermark_is_that_of_the_last_step(output_us: int, said: str) -> None:
    steps = {"Read": step(output_us), "Done": step(MAX_US)}
    assert text(EpochStatus(epoch=1_234, steps=steps)) == f"epoch 1,234 · {said}"


def test_before_the_first_epoch() -> None:
    assert text(None) == "before the first epoch"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"A": step(MAX_US, 1, 5.0)}, "1 restriction, backlog 5"),
        (
            {"A": step(MAX_US, 999, 2e3), "B": step(MAX_US, 1, 1.0)},
            "1,000 restrictions, backlog 2,001",
        ),
        ({"A": step(MAX_US, 200), "B": step(MAX_US, 1, 1.0)}, "201 restrictions"),
        ({"A": step(MAX_US, 200), "B": step(MAX_US, 0, 0.0)}, "200 restrictions"),
    ],
)
def test_the_line_says_how_much_waits_at_sources(steps: dict[str, StepStatus], said: str) -> None:
    assert text(EpochStatus(epoch=1, steps=steps)).endswith(f"end of time · {said}")


def test_the_line_says_how_much_waits_for_reads() -> None:
    steps = {name: StepStatus(input_us=MAX_US, output_us=MAX_US, left=600) for name in "ab"}
    assert text(EpochStatus(epoch=1, steps=steps)).endswith("end of time · 1,200 wait for reads")


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    line, status = StreamLine(), EpochStatus(epoch=1)
    said = [
        line.parts(status, now_us=0, elements=elements, now_s=now_s)[-1]
        for now_s, elements in [(0, 0), (5, 5_000), (10, 10_000), (20, 10_000), (25, 10_500)]
    ]
    assert said[1:] == ["1,000 elements/s", "1,000 elements/s", "0 elements/s", "33 elements/s"]


def test_several_sources_have_each_its_rate() -> None:
    line, status = StreamLine(), EpochStatus(epoch=1)
    line.parts(status, now_us=NOW_US, elements=0, now_s=0.0)
    sources = {"Orders": 1_000.0, "Rates": 250.0}
    said = line.parts(status, now_us=NOW_US, elements=2_500, now_s=2.0, sources=sources)
    assert said[-2:] == ["1,250 elements/s", "elements/s of each source: Orders 1,000, Rates 250"]


def test_steps_are_those_of_the_user() -> None:
    line = StreamLine({"Read/Read/Process": "Read"})
    status = EpochStatus(epoch=1, steps={"Read/Read/Process": step(NOW_US)})
    said = line.parts(status, now_us=NOW_US, elements=0, now_s=0.0, commit_age_s=61.5)
    assert said == ["epoch 1, 1 min 1 s ago", "watermark 0 s behind (Read)"]
