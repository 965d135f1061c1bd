"""Values of builtin types that cannot change, however deep they are nested."""

from typing import Any

from beam_spark_runner.harness.values.constants import is_plain


def test_tuples_are_plain_to_a_depth() -> None:
    value: Any = 1
    for _ in range(3):
        value = (value, "a")
    assert is_plain(value, depth=2)
    assert not is_plain(value, depth=1)


def test_tuples_that_are_nested_without_end_are_not_plain() -> None:
    value: Any = ()
    for _ in range(10_000):
        value = (value, value)
    assert not is_plain(value)
