import pytest

from beam_spark_runner.scheduling.attempts import Accepted, Failed, Failure, Rejected, Report, judge

FAILURE = Failure(step="Outer/step", cause="ValueError: no", traceback_text="", kind="")


def report(
    level: int, partition: int, attempt: int = 0, read: tuple[int, ...] = (), **more: object
) -> Report:
    return Report(
        level=level,
        partition=partition,
        attempt=attempt,
        consumed_count=len(read),
        consumed_sum=sum(read) % 2**64,
        **more,  # type: ignore[arg-type]
    )


BIG = 2**63 - 1


@pytest.mark.parametrize(
    ("reports", "partitions", "verdict"),
    [
        pytest.param([], {}, Accepted(), id="nothing was to run"),
        pytest.param([report(0, 5, 1)], {}, Accepted(), id="Spark chose the tasks of level 0"),
        pytest.param(
            [report(0, 0, 1), report(0, 1, 2), report(1, 0, 3, (1, 2)), report(1, 1, 4, (2, 1))],
            {1: 2},
            Accepted(),
            id="all read both tasks",
        ),
        pytest.param(
            [report(0, 0, 1), report(0, 1, 2), report(1, 0, 3, (1, 2)), report(1, 1, 4, (9, 2))],
            {1: 2},
            Rejected(
                "level 1, partition 1 read other attempts of level 0 than those that reported"
            ),
            id="one read an attempt that was lost",
        ),
        pytest.param(
            [report(0, 0, 1), report(1, 0, 3, (1, 1))],
            {1: 1},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="read the same twice",
        ),
        pytest.param(
            [report(0, 0, 1), report(1, 0, 3)],
            {1: 1},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="read no task, since marks were lost",
        ),
        pytest.param(
            [report(0, 0, 1), report(1, 0, 3, (1,))],
            {1: 2},
            Rejected("level 1 reported from partitions [0] of 2"),
            id="a report is missing",
        ),
        pytest.param(
            [report(0, 0, 1), report(1, 0, 3, (1,)), report(1, 0, 4, (1,))],
            {1: 1},
            Rejected("level 1 reported from partitions [0, 0] of 1"),
            id="two attempts of one task reported",
        ),
        pytest.param(
            [report(1, 0, 3)], {1: 1}, Accepted(), id="the first level is behind an exchange"
        ),
        pytest.param(
            [
                report(0, 0, 1),
                report(1, 0, 3, (1,)),
                report(1, 1, 4, (1,)),
                report(2, 0, 5, (3, 4)),
                report(2, 1, 6, (3, 7)),
            ],
            {1: 2, 2: 2},
            Rejected(
                "level 2, partition 1 read other attempts of level 1 than those that reported"
            ),
            id="deep down",
        ),
        pytest.param(
            [report(0, 0, BIG), report(0, 1, BIG), report(0, 2, BIG), report(1, 0, 1, (BIG,) * 3)],
            {1: 1},
            Accepted(),
            id="sums wrap at 64 bits",
        ),
        pytest.param(
            [report(0, 0, 1, failure=FAILURE), report(1, 0, 2, poisoned=True)],
            {1: 2},
            Failed(FAILURE),
            id="a failure comes before everything else",
        ),
    ],
)
def test_verdicts(reports: list[Report], partitions: dict[int, int], verdict: object) -> None:
    assert judge(reports, partitions) == verdict
