"""Executors that Spark has lost, among those that it has released."""

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError

from beam_spark_runner.observing.troubles import LostExecutor
from beam_spark_runner.spark.session.lost_executors import LostExecutors


class Option:
    def __init__(self, value: Any) -> None:
        self._value = value

    def isEmpty(self) -> bool:
        return self._value is None

    def get(self) -> Any:
        return self._value


def summary(id_: str, reason: str | None = None, *, is_active: bool = False) -> Any:
    date = None if is_active else SimpleNamespace(getTime=lambda: 12_500)
    return SimpleNamespace(
        id=lambda: id_,
        isActive=lambda: is_active,
        removeTime=lambda: Option(date),
        removeReason=lambda: Option(reason),
    )


class Store:
    """The status store of a driver."""

    def __init__(self, *summaries: Any) -> None:
        self.summaries = summaries
        self.is_gone = False
        self.looked_into = 0

    def executorList(self, active_only: bool) -> Any:
        if self.is_gone:
            raise Py4JError("the JVM has ended")
        found = [each for each in self.summaries if not active_only or each.isActive()]

        def apply(place: int) -> Any:
            self.looked_into += 1
            return found[place]

        return SimpleNamespace(size=lambda: len(found), apply=apply)


def looking(store: Store) -> LostExecutors:
    scala = SimpleNamespace(statusStore=lambda: store)
    return LostExecutors(SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala)))


def test_those_that_have_died_are_lost_and_others_were_released() -> None:
    store = Store(
        summary("driver", is_active=True),
        summary("1", " Command exited with code 137\n"),
        summary("2", "Executor killed by driver."),
        summary("3"),
    )
    executors = looking(store)
    died = LostExecutor(executor="1", at_s=12.5, reason="Command exited with code 137")
    assert executors.look() == (died, LostExecutor(executor="3", at_s=12.5, reason=""))
    looked_into = store.looked_into
    assert executors.look()[0] == died
    assert store.looked_into == looked_into, "nothing has changed"
    store.is_gone = True
    assert executors.look()[0] == died


def test_a_client_of_spark_connect_cannot_ask() -> None:
    assert LostExecutors(None).look() == ()
