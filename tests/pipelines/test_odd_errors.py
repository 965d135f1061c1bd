"""Errors whose text is odd are the pipeline's errors all the same, and name their steps."""

import builtins
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import BagStateSpec

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import LOOPBACK, REUSED_PROCESS, harvest, run


class UnprintableError(Exception):
    def __str__(self) -> NoReturn:
        raise KeyError("not the user's error")

    __repr__ = __str__


class HidesItsArgumentsError(Exception):
    def __str__(self) -> str:
        return "fixed"


class NeedsMoreError(Exception):
    """Can be made neither of its arguments, nor of its pickle."""

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("no pickle")


class LeavingError(BaseException):
    pass


class _OddMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyError("no name")


class OddlyNamedError(Exception, metaclass=_OddMeta):
    pass


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "surrogate": (lambda: ValueError("a\udc80"), "ValueError: a\\udc80"),
    "unprintable": (
        lambda: UnprintableError("mine"),
        "UnprintableError: <its __str__ raises; arguments: ('mine')>",
    ),
    "fixed text": (lambda: HidesItsArgumentsError("mine"), "HidesItsArgumentsError: fixed"),
    "of keywords": (lambda: NeedsMoreError(code=5), "NeedsMoreError: code 5"),
    "base": (lambda: LeavingError("mine"), "LeavingError: mine"),
    "exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "interrupt": (lambda: KeyboardInterrupt(), "KeyboardInterrupt: "),
    "odd name": (lambda: OddlyNamedError("mine"), "OddlyNamedError: mine"),
}
if sys.version_info >= (3, 11):
    ERRORS["group"] = (
        lambda: vars(builtins)["ExceptionGroup"]("several", [ValueError("\udc80")]),
        "ExceptionGroup: several (1 sub-exception)",
    )


def raise_it(_: Any, name: str) -> NoReturn:
    raise ERRORS[name][0]()


BAG = beam.DoFn.StateParam(BagStateSpec("bag", VarIntCoder()))


class InProcess(beam.DoFn):  # type: ignore[misc]
    """Beam calls it element by element, since it has state."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, element: Any, _: Any = BAG) -> Any:
        raise_it(element, self._name)


class InSetup(beam.DoFn):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        self._name = name

    def setup(self) -> None:
        raise_it(None, self._name)

    def process(self, element: Any) -> Iterator[Any]:
        yield element


class InFinish(InSetup):
    setup = beam.DoFn.setup

    def finish_bundle(self) -> None:
        raise_it(None, self._name)


PLACES: dict[str, Callable[[str], Any]] = {
    "map": lambda name: beam.Map(raise_it, name),
    "keyed": lambda name: beam.ParDo(InProcess(name)),
    "setup": lambda name: beam.ParDo(InSetup(name)),
    "finish": lambda name: beam.ParDo(InFinish(name)),
}


HARNESSES = {"embedded": (), "PROCESS": REUSED_PROCESS, "LOOPBACK": LOOPBACK}


@pytest.mark.parametrize(
    ("place", "flags"),
    [
        *(pytest.param(place, (), id=f"{place}-embedded") for place in PLACES),
        *(
            pytest.param(
                place,
                HARNESSES[harness],
                id=f"{place}-{harness}",
                marks=() if (place, harness) == ("map", "PROCESS") else pytest.mark.rare,
            )
            for place in ("map", "keyed")
            for harness in ("PROCESS", "LOOPBACK")
        ),
    ],
)
@pytest.mark.parametrize("name", ERRORS)
def test_the_error_and_its_step_are_known(
    spark_session: Any, name: str, place: str, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> Any:
        keyed = p | beam.Create([("key", 1)])
        return keyed | "Before" >> beam.Map(lambda pair: pair) | "Bad one" >> PLACES[place](name)

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build, *flags)
    assert raised.value.step == "Bad one"
    assert raised.value.cause == ERRORS[name][1]
    assert "in raise_it" in raised.value.traceback_text
    assert "raise ERRORS[name]" in raised.value.traceback_text


@pytest.mark.spark
def test_odd_log_lines_of_workers_arrive(on_spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    check_odd_log_lines(on_spark, caplog)


def test_odd_log_lines_of_harnesses_arrive(
    spark_session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    check_odd_log_lines(spark_session, caplog, *REUSED_PROCESS)


def check_odd_log_lines(spark: Any, caplog: pytest.LogCaptureFixture, *flags: str) -> None:
    def log(element: int) -> int:
        logging.getLogger("user.module").warning("of \udc80 %s", "more")
        try:
            raise ValueError("\udc81")
        except ValueError:
            logging.getLogger("user.module").exception("with a trace")
        return element

    with caplog.at_level(logging.WARNING):
        found = harvest(
            spark, lambda p: {"x": p | beam.Create([1]) | "Log" >> beam.Map(log)}, *flags
        )
    assert found["x"] == [1]
    lines = [record.getMessage() for record in caplog.records]
    assert any("of \\udc80 more" in line for line in lines)
    assert any("with a trace" in line and "ValueError: \\udc81" in line for line in lines)
