"""Whatever an exception is like, its text can be sent."""

import builtins
import sys
from typing import Any, NoReturn

import pytest

from beam_spark_runner.core.rendering import (
    MAX_CHARACTERS,
    MAX_TRACEBACK_LENGTH,
    RenderedError,
    class_name,
    message_of,
    render_error,
    short_text_of,
    text_of,
    valid_text,
)


def leave(*_: Any) -> NoReturn:
    sys.exit("from within")


class Unprintable(Exception):
    __str__ = __repr__ = leave


class PrintsNoText(Exception):
    def __str__(self) -> Any:
        return 5


class OddText(str):
    encode = __len__ = __getitem__ = leave  # type: ignore[assignment]


class PrintsOddText(Exception):
    def __str__(self) -> str:
        return OddText("odd text")


class _OddMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyError("no name")


class OddlyNamed(Exception, metaclass=_OddMeta):
    pass


class HasNoNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise ValueError("no notes")


class NoModule(Exception):
    __module__ = 5  # type: ignore[assignment]


class HidesArguments(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise ValueError("no arguments")

    __str__ = leave


class DoesNotPickle(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("no pickle")


class Leaves(BaseException):
    pass


def rendered(error: BaseException) -> RenderedError:
    try:
        raise error
    except BaseException as caught:
        return render_error(caught)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("plain"), "ValueError: plain"),
        (ValueError(), "ValueError: "),
        (ValueError("a\udc80b"), "ValueError: a\\udc80b"),
        (ValueError("\ud83d\ude00"), "ValueError: \\ud83d\\ude00"),
        (Unprintable("mine", 7), "Unprintable: <its __str__ raises; arguments: ('mine', 7)>"),
        (
            Unprintable(Unprintable()),
            "Unprintable: <its __str__ raises; arguments: (<a Unprintable whose __repr__ raises>)>",
        ),
        (PrintsNoText("mine"), "PrintsNoText: <its __str__ raises; arguments: ('mine')>"),
        (PrintsOddText(), "PrintsOddText: odd text"),
        (OddlyNamed("mine"), "OddlyNamed: mine"),
        (HasNoNotes("mine"), "HasNoNotes: mine"),
        (NoModule("mine"), "NoModule: mine"),
        (HidesArguments("mine"), "HidesArguments: <its __str__ raises; arguments: ('mine')>"),
        (DoesNotPickle("mine"), "DoesNotPickle: mine"),
        (Leaves("mine"), "Leaves: mine"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
    ],
    ids=lambda each: type.__dict__["__name__"].__get__(type(each)).encode("ascii", "replace"),
)
def test_class_message_and_traceback(error: BaseException, cause: str) -> None:
    found = rendered(error)
    assert found.cause == cause
    assert "in rendered" in found.traceback_text
    assert found.class_name in found.traceback_text
    for text in (found.class_name, found.message, found.traceback_text):
        assert text.encode().decode() == text


def test_the_whole_chain_is_shown() -> None:
    try:
        try:
            raise Unprintable
        except Unprintable as first:
            raise ValueError("sec\udc80nd") from first
    except ValueError as error:
        found = render_error(error)
    assert "Unprintable: <exception str() failed>" in found.traceback_text
    assert found.traceback_text.endswith("ValueError: sec\\udc80nd\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no ExceptionGroup")
def test_a_group_shows_its_members() -> None:
    group = vars(builtins)["ExceptionGroup"]
    found = rendered(group("several", [ValueError("a\udc80"), Unprintable()]))
    assert found.cause == "ExceptionGroup: several (2 sub-exceptions)"
    assert "ValueError: a\\udc80" in found.traceback_text


def test_texts_are_bounded() -> None:
    found = rendered(ValueError("a" * 10_000_000 + "the end"))
    assert len(found.message) < MAX_CHARACTERS + 100
    assert len(found.traceback_text) < MAX_TRACEBACK_LENGTH + 100
    assert found.message.startswith("aaa")
    assert found.message.endswith("the end")
    assert f"({10_000_007 - MAX_CHARACTERS:,} characters are left out)" in found.message
    assert len(rendered(Unprintable(*["b" * 1_000] * 1_000)).message) < MAX_CHARACTERS + 100


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 4, "ab … (2 characters are left out) … ef"),
        ("abcdef", 1, " … (6 characters are left out) … "),
        ("\udc80", 1, "\\udc80"),
    ],
)
def test_valid_text(text: str, limit: int, kept: str) -> None:
    assert valid_text(text, limit) == kept


def test_values() -> None:
    assert text_of("a\udc80") == "'a\\udc80'"
    assert text_of(Unprintable()) == "<a Unprintable whose __repr__ raises>"
    assert class_name(Unprintable()) == "Unprintable"
    assert message_of(ValueError("abc"), 2) == "a … (1 characters are left out) … c"


def test_large_values_are_not_rendered_as_a_whole() -> None:
    class Endless:
        def __repr__(self) -> str:
            return leave()

    assert short_text_of(("key", [1, 2], {"a": b"bytes"})) == "('key', [1, 2], {'a': b'bytes'})"
    for large in (b"a" * (1 << 20), bytearray(1 << 20), "a" * (1 << 20), list(range(1 << 20))):
        assert len(short_text_of((large, "key"))) < 1_100
    assert short_text_of(b"a" * (1 << 20)).endswith("... (1,048,576 bytes)")
    nested: list[Any] = []
    nested.append([nested] * 100)
    assert len(short_text_of(nested)) <= 1_100
    assert "Endless" in short_text_of(Endless())
    assert "Unprintable" in short_text_of(Unprintable())
