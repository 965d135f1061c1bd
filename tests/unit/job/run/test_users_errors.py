"""An error of user code is caught by its own type, whatever the exception's class is like."""

import builtins
import copy
import enum
import pickle
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from apache_beam.testing.util import BeamAssertException

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import BundleFailedError, StagingError
from beam_spark_runner.engine.rows.reports import _report_of, error_of, failure_proto
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.remote.sdk_failures import user_failure
from beam_spark_runner.job.run.users_errors import as_users_own


class NeedsArgumentsError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__()
        self.code, self.detail = code, detail

    def __str__(self) -> str:
        return f"code {self.code}"


class HasSlotsError(ValueError):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("slots", code)
        self.code = code


class _Meta(type):
    def __new__(cls, name: str, bases: Any, members: Any, *, code: int) -> Any:
        return super().__new__(cls, name, bases, {**members, "code": code})

    def __init__(cls, *_: Any, code: int) -> None:
        pass

    def __call__(cls: Any, *_: Any) -> Any:
        return cls.__new__(cls)


class HasMetaclassError(Exception, metaclass=_Meta, code=7):
    pass


class FinalError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("FinalError is final")


class WritesItselfError(Exception):
    """All of its methods need what only its ``__init__`` sets."""

    def __init__(self) -> None:
        object.__setattr__(self, "inner", object())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def _fail(self, *_: Any) -> Any:
        raise KeyError("not the user's error")

    __eq__ = __repr__ = __str__ = __reduce__ = __reduce_ex__ = _fail
    __hash__ = None  # type: ignore[assignment]


class HasOurNamesError(Exception):
    step = property(lambda self: "the user's")
    cause = traceback_text = raised = step

    def __init__(self) -> None:
        super().__init__("mine")
        self._failure = "the user's"


class OutcomeError(BaseException):
    pass


class Outer:
    class InnerError(OSError):
        pass


class Severity(enum.IntEnum):
    HIGH = 3


class HasManyAttributesError(Exception):
    def __init__(self) -> None:
        super().__init__("many", Severity.HIGH)
        self.plain = {"a": [1, 2.5, None, (b"x", True)]}
        self.endless = float("inf")
        self.ring: list[Any] = []
        self.ring.append(self.ring)
        self.long = "x" * (1 << 20)
        self.severity = Severity.HIGH
        self.module = sys


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise it\n'


def _import_error() -> BaseException:
    return ImportError("no", name="it", path="there")


def _decode_error() -> BaseException:
    return UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "built in": lambda: ValueError("boom"),
    "without arguments": lambda: NotImplementedError(),
    "of a key": lambda: KeyError("a key"),
    "of the system": lambda: FileNotFoundError(2, "No such file", "/there"),
    "of text": _decode_error,
    "of an import": _import_error,
    "of syntax": lambda: SyntaxError("wrong", ("file.py", 1, 2, "text")),
    "of an iterator": lambda: StopIteration(5),
    "a warning": lambda: DeprecationWarning("old"),
    "Beam's assert_that": lambda: BeamAssertException("Failed assert"),
    "this runner's own": lambda: StagingError("a file"),
    "needs arguments": lambda: NeedsArgumentsError(5, detail="d"),
    "slots": lambda: HasSlotsError(5),
    "metaclass": lambda: HasMetaclassError("mine"),
    "final": lambda: FinalError("mine"),
    "writes itself": lambda: WritesItselfError(),
    "our names": lambda: HasOurNamesError(),
    "nested class": lambda: Outer.InnerError("mine"),
    "attributes": lambda: HasManyAttributesError(),
    "a runtime error": lambda: RecursionError("deep"),
    "no Exception": lambda: OutcomeError("not here"),
}


def thrown(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as error:
        return error


def reported(error: BaseException) -> BundleFailedError:
    """Send an error from a worker to the driver, as a task's report does."""
    report = reports_pb2.TaskReport(failure=failure_proto(failure_of(error, "Step")))
    found = _report_of(reports_pb2.TaskReport.FromString(report.SerializeToString())).failure
    assert found is not None
    arrived = error_of(found)
    assert isinstance(arrived, BundleFailedError)
    return arrived


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_caught_as_the_users_and_the_runners(kind: str) -> None:
    original = thrown(ERRORS[kind])
    plain = reported(original)
    caught = as_users_own(plain)
    with pytest.raises(type(original)):
        raise caught
    with pytest.raises(BundleFailedError):
        raise caught
    each: Any
    for each in (caught, pickle.loads(pickle.dumps(caught)), copy.copy(caught)):
        assert issubclass(type(each), type(original))
        assert str(each) == str(plain)
        assert (each.step, each.cause) == (plain.step, plain.cause) == ("Step", plain.cause)
        assert each.traceback_text == plain.traceback_text
        assert repr(each).startswith("BundleFailedError(")
        printed = "".join(traceback.format_exception(each))
        assert f"BundleFailedError: Step: {plain.cause}" in printed
        assert "raise make()" in printed
        assert each in {each}


def test_attributes_that_are_plain_data_arrive() -> None:
    def arrived(kind: str) -> Any:
        return as_users_own(reported(thrown(ERRORS[kind])))

    system = arrived("of the system")
    assert (system.errno, system.strerror, system.filename) == (2, "No such file", "/there")
    assert system.args == (2, "No such file")
    text = arrived("of text")
    assert (text.encoding, text.object, text.start, text.end) == ("utf-8", b"a\xff", 1, 2)
    assert (arrived("of an import").name, arrived("of an import").path) == ("it", "there")
    assert (arrived("needs arguments").code, arrived("needs arguments").detail) == (5, "d")
    assert (arrived("slots").code, arrived("slots").args) == (5, ("slots", 5))
    assert arrived("metaclass").code == 7
    assert arrived("of an iterator").value == 5

    many = arrived("attributes")
    assert many.plain == {"a": [1, 2.5, None, (b"x", True)]}
    assert many.args == ("many", "<Severity.HIGH: 3>")
    for name in ("endless", "ring", "long", "severity", "module"):
        with pytest.raises(AttributeError, match=f"{name}.*Only attributes that are plain data"):
            getattr(many, name)


@pytest.mark.parametrize(
    "control", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__
)
def test_what_would_end_the_program_does_not(control: BaseException) -> None:
    assert type(as_users_own(reported(thrown(lambda: control)))) is BundleFailedError


def test_a_class_that_the_program_has_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nearest base class that is known is used, and nothing is imported for it."""
    module = types.ModuleType("far_away")
    exec("class FarError(OSError): pass\nclass FarthestError(Exception): pass", vars(module))
    monkeypatch.setitem(sys.modules, "far_away", module)
    assert isinstance(as_users_own(reported(module.FarError(5, "x"))), module.FarError)

    far, farthest = (reported(module.FarError(5, "x")), reported(module.FarthestError("x")))
    monkeypatch.delitem(sys.modules, "far_away")
    assert isinstance(as_users_own(far), OSError)
    assert type(as_users_own(farthest)) is BundleFailedError
    assert "far_away" not in sys.modules


def test_a_module_is_not_asked_for_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("lazy")

    def imports_more(name: str) -> NoReturn:
        raise AssertionError(name)

    vars(module)["__getattr__"] = imports_more
    monkeypatch.setitem(sys.modules, "lazy", module)
    text = f"{TRACE}lazy.sub.Error: x"
    assert type(as_users_own(user_failure(text, "Step", []))) is BundleFailedError


def test_a_class_of_a_function_is_caught_by_its_base() -> None:
    class LocalError(LookupError):
        pass

    found = as_users_own(reported(thrown(lambda: LocalError("mine"))))
    assert isinstance(found, LookupError)


def test_a_class_of_the_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("OfMainError", (Exception,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "OfMainError", kind, raising=False)
    assert isinstance(as_users_own(reported(thrown(lambda: kind("mine")))), kind)
    text = f"{TRACE}OfMainError: mine"  # as Python prints it
    assert isinstance(as_users_own(user_failure(text, "Step", [])), kind)


def test_the_class_that_was_raised_and_not_its_cause() -> None:
    def chained() -> NoReturn:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    found = as_users_own(reported(thrown(chained)))
    assert isinstance(found, ValueError)
    assert not isinstance(found, KeyError)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no groups yet")
def test_a_group_has_its_exceptions() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]
    inner = group("inner", [OSError(2, "x"), NeedsArgumentsError(5, detail="d")])
    found: Any = as_users_own(reported(thrown(lambda: group("outer", [ValueError("a"), inner]))))
    assert isinstance(found, group)
    matched, rest = found.split(ValueError)
    assert [type(each) for each in matched.exceptions] != [ValueError]
    assert isinstance(matched.exceptions[0], BundleFailedError)
    assert rest.exceptions[0].exceptions[1].code == 5
    assert str(found) == str(pickle.loads(pickle.dumps(found)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{TRACE}ValueError: boom", ValueError),
        (f"{TRACE}NotImplementedError", NotImplementedError),
        (f"{TRACE}OSError: a\nValueError: b", OSError),
        (f"{TRACE}{__name__}.Outer.InnerError: x", Outer.InnerError),
        (
            f"{TRACE}apache_beam.testing.util.BeamAssertException: x",
            BeamAssertException,
        ),
        (f"{TRACE}SystemExit: 3", BundleFailedError),
        (f"{TRACE}sys.exit: 3", BundleFailedError),
        (f"{TRACE}int: 3", BundleFailedError),
        (f"{TRACE}...: 3", BundleFailedError),
        ("java.lang.ValueError: 3", BundleFailedError),
        ("ValueError: of no traceback", BundleFailedError),
        ("", BundleFailedError),
    ],
)
def test_the_text_of_an_sdk_harness_names_the_class(text: str, kind: type[BaseException]) -> None:
    found = as_users_own(user_failure(text, "Step", []))
    assert isinstance(found, kind)
    assert isinstance(found, BundleFailedError)
    assert (type(found) is BundleFailedError) == (kind is BundleFailedError)
