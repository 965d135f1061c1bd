"""Whether all that tasks say to have told has arrived."""

from collections.abc import Callable

import pytest

from beam_spark_runner.scheduling.deliveries import Deliveries

A, B = "worker a", "worker b"
Fact = Callable[[Deliveries], None]


@pytest.mark.parametrize(
    ("facts", "unheard", "awaited"),
    [
        pytest.param([], [], [], id="nothing was told"),
        pytest.param([lambda x: x.expect(A, 2)], [A], [], id="a worker has not called"),
        pytest.param([lambda x: x.expect(A, 1)], [A], [], id="one thing is enough to wait for"),
        pytest.param([lambda x: x.expect(A, 0)], [], [], id="a worker had nothing to tell"),
        pytest.param(
            [lambda x: x.expect(A, 2), lambda x: x.arrived(A, 2)], [], [], id="all has come"
        ),
        pytest.param(
            [lambda x: x.arrived(A, 3), lambda x: x.expect(A, 2), lambda x: x.expect(A, 1)],
            [],
            [],
            id="it came before the report, and reports come in any order",
        ),
        pytest.param([lambda x: x.expect(A, 2), lambda x: x.gone(A)], [], [], id="it is gone"),
        pytest.param(
            [lambda x: x.accepted(7, A), lambda x: x.accepted(8, B), lambda x: x.finalized([7])],
            [],
            [8],
            id="callbacks of one have run",
        ),
        pytest.param(
            [lambda x: x.accepted(7, A), lambda x: x.gone(A)], [], [], id="lost callbacks"
        ),
    ],
)
def test_what_is_waited_for(facts: list[Fact], unheard: list[str], awaited: list[int]) -> None:
    arrivals = Deliveries()
    for fact in facts:
        fact(arrivals)
    assert arrivals.unheard() == frozenset(unheard)
    assert arrivals.awaited_callbacks() == frozenset(awaited)
    assert arrivals.are_complete() == (not unheard and not awaited)


def test_a_worker_that_has_called_may_still_owe_something() -> None:
    arrivals = Deliveries()
    arrivals.expect(A, 2)
    arrivals.arrived(A, 1)
    assert not arrivals.unheard()
    assert not arrivals.are_complete()


def test_workers_tear_down_until_they_say_so_or_are_gone() -> None:
    arrivals = Deliveries()
    assert arrivals.tearing_down() == frozenset()
    arrivals.ends(A)
    arrivals.ends(B)
    assert arrivals.tearing_down() == {A, B}
    arrivals.has_torn_down(A)
    arrivals.has_torn_down("worker c, which was not told to")
    assert arrivals.tearing_down() == {B}
    arrivals.gone(B)
    assert arrivals.tearing_down() == frozenset()
