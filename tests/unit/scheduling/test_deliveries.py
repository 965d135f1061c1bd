"""Whether all messages that tasks say they sent have arrived."""

from collections.abc import Callable

import pytest

from beam_spark_runner.scheduling.deliveries import Deliveries

A, B = "worker a", "worker b"
Fact = Callable[[Deliveries], None]


@pytest.mark.parametrize(
    ("facts", "unheard", "awaited"),
    [
        pytest.param([], [], [], id="nothing was sent"),
        pytest.param([lambda x: x.expect(A, 2)], [A], [], id="a worker has not called"),
        pytest.param([lambda x: x.expect(A, 1)], [A], [], id="one thing is enough to wait for"),
        pytest.param([lambda x: x.expect(A, 0)], [], [], id="a worker sent nothing"),
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
    deliveries = Deliveries()
    for fact in facts:
        fact(deliveries)
    assert deliveries.unheard() == frozenset(unheard)
    assert deliveries.awaited_callbacks() == frozenset(awaited)
    assert deliveries.are_complete() == (not unheard and not awaited)


def test_a_worker_that_has_called_may_still_owe_something() -> None:
    deliveries = Deliveries()
    deliveries.expect(A, 2)
    deliveries.arrived(A, 1)
    assert not deliveries.unheard()
    assert not deliveries.are_complete()


def test_workers_tear_down_until_they_say_so_or_are_gone() -> None:
    deliveries = Deliveries()
    assert deliveries.tearing_down() == frozenset()
    deliveries.ends(A)
    deliveries.ends(B)
    assert deliveries.tearing_down() == {A, B}
    deliveries.has_torn_down(A)
    deliveries.has_torn_down("worker c, which was not asked to")
    assert deliveries.tearing_down() == {B}
    deliveries.gone(B)
    assert deliveries.tearing_down() == frozenset()
