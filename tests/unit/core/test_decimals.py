import pytest

from beam_spark_runner.core.decimals import decimal_in


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("0", 0),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5_000, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("x", None),
    ],
)
def test_numbers_in_texts(text: str, number: int | None) -> None:
    assert decimal_in(text) == number
