import pytest

from beam_spark_runner.scheduling.attempts import (
    IN_THIS_JOB,
    Accepted,
    Ambiguous,
    Attempts,
    Consumed,
    Failed,
    Failure,
    Rejected,
    Report,
    ambiguous_runs,
    judge,
)

FAILURE = Failure(step="Outer/step", cause="ValueError: no", traceback_text="", kind="")


def report(
    level: int,
    partition: int,
    attempt: int = 0,
    read: tuple[int, ...] = (),
    *,
    kept: Consumed | None = None,
    **more: object,
) -> Report:
    in_this_job = {IN_THIS_JOB: Attempts.of(read)} if read else {}
    return Report(
        level=level,
        partition=partition,
        attempt=attempt,
        consumed={**in_this_job, **(kept or {})},
        **more,  # type: ignore[arg-type]
    )


def of(*attempts: int) -> Attempts:
    return Attempts.of(attempts)


BIG = 2**63 - 1


@pytest.mark.parametrize(
    ("reports", "partitions", "verdict"),
    [
        pytest.param([], {}, Accepted(), id="nothing was to run"),
        pytest.param([report(0, 5, 1)], {}, Accepted(), id="Spark chose the tasks of level 0"),
        pytest.param([report(1, 0, 1)], {1: 1}, Accepted(), id="Spark chose none for level 0"),
        pytest.param(
            [report(1, 0, 1, (7,))],
            {1: 1},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="no attempt reported, and one was read",
        ),
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
            Rejected("two attempts at one task of level 1 reported"),
            id="two attempts of one task reported",
        ),
        pytest.param(
            [report(0, 0, 1), report(0, 0, 2)],
            {},
            Rejected("two attempts at one task of level 0 reported"),
            id="two attempts of one task reported, and Spark chose the tasks",
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
            [report(0, 0, 1, failure=FAILURE), report(1, 0, 2, (1,), is_poisoned=True)],
            {1: 2},
            Failed(FAILURE),
            id="a failure comes before a report that is missing",
        ),
        pytest.param(
            [report(0, 0, 1), report(1, 0, 2, (9,), failure=FAILURE)],
            {1: 1},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="user code failed on rows that it should not have got",
        ),
        pytest.param(
            [report(1, 0, 3, (1,))],
            {1: 1},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="all reports of a level are missing",
        ),
    ],
)
def test_reports_are_judged_by_the_attempts_that_tasks_have_read(
    reports: list[Report], partitions: dict[int, int], verdict: object
) -> None:
    assert judge(reports, partitions) == verdict


def test_sums_fit_64_bits_and_use_all_of_them() -> None:
    assert of(BIG, BIG) + of(BIG, BIG) == of(*[BIG] * 4) == Attempts(4, 2**64 - 4)


OTHER = "level 0 read other attempts' rows than the materialised ones"


@pytest.mark.parametrize(
    ("reports", "partitions", "kept", "verdict"),
    [
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}), report(0, 1, 2, kept={7: of(5)})],
            {},
            {7: of(4, 5)},
            Accepted(),
            id="in place, each attempt's rows once",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}), report(0, 1, 2)],
            {},
            {7: of(4, 5)},
            Ambiguous(frozenset({7}), OTHER),
            id="in place, one attempt's rows are missing",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}), report(0, 1, 2, kept={7: of(4, 5)})],
            {},
            {7: of(4, 5)},
            Ambiguous(frozenset({7}), OTHER),
            id="in place, one attempt's rows twice",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}), report(0, 0, 2, kept={7: of(4)})],
            {},
            {7: of(4)},
            Rejected("two attempts at one task of level 0 reported"),
            id="in place, by two attempts at the task that reads them",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4, 5)}), report(0, 1, 2, kept={7: of(5, 4)})],
            {0: 2},
            {7: of(4, 5)},
            Accepted(),
            id="after an exchange, each task all of them",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4, 5)}), report(0, 1, 2, kept={7: of(4, 6)})],
            {0: 2},
            {7: of(4, 5)},
            Ambiguous(frozenset({7}), OTHER),
            id="after an exchange, one task another attempt's",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4), 8: of(6), 9: of(5)})],
            {},
            {7: of(4), 8: of(5), 9: of(5)},
            Ambiguous(frozenset({8}), OTHER),
            id="of three segments' rows, those of one",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)})],
            {},
            {},
            Ambiguous(frozenset({7}), OTHER),
            id="rows that nobody has kept",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(6)}, failure=FAILURE)],
            {},
            {7: of(4)},
            Ambiguous(frozenset({7}), OTHER),
            id="user code failed on rows that it should not have got",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}, failure=FAILURE)],
            {},
            {7: of(4)},
            Failed(FAILURE),
            id="user code failed on the right ones",
        ),
        pytest.param(
            [report(0, 0, 1, kept={7: of(4)}), report(1, 0, 2, (9,))],
            {1: 1},
            {7: of(4)},
            Rejected(
                "level 1, partition 0 read other attempts of level 0 than those that reported"
            ),
            id="mixed within the job only",
        ),
    ],
)
def test_verdicts_about_kept_rows(
    reports: list[Report], partitions: dict[int, int], kept: Consumed, verdict: object
) -> None:
    assert judge(reports, partitions, materialised=kept) == verdict


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        pytest.param({3: of(8)}, Accepted(), id="what the round before has kept"),
        pytest.param(
            {2: of(7)},
            Ambiguous(frozenset({2, 3}), OTHER.replace("0", "1")),
            id="what an earlier round has kept",
        ),
    ],
)
def test_a_job_that_does_not_begin_with_the_first_level(read: Consumed, verdict: object) -> None:
    reports = [report(1, 0, 3, kept=read)]
    assert judge(reports, {1: 1}, first=1, materialised={3: of(8)}) == verdict


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_run_without_tasks_has_nothing_to_read(is_exchanged: bool) -> None:
    """Its segment has read an empty table, which has no partitions."""
    made = {1: Attempts.of([]), 2: of(4)}
    assert not ambiguous_runs([{2: of(4)}], made, is_exchanged=is_exchanged)
    assert ambiguous_runs([{1: of(7), 2: of(4)}], made, is_exchanged=is_exchanged) == {1}
    assert not ambiguous_runs([], {1: Attempts.of([])}, is_exchanged=is_exchanged)


def test_a_task_that_has_read_nothing_behind_an_exchange_has_not_read_the_same() -> None:
    kept = {1: of(4)}
    assert ambiguous_runs([kept, {}], kept, is_exchanged=True) == {1}
    assert not ambiguous_runs([kept, {}], kept, is_exchanged=False)
