"""Parses schemas in SQL's syntax, such as ``id BIGINT NOT NULL, tags ARRAY<STRING>``."""

import re
from collections.abc import Callable

from beam_spark_runner.core.table_types import SQL_NAMES, Column, SparkType, schema_of, struct_of

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_]\w*|\d+|[<>(),:])", re.ASCII)
_SYNONYMS = {
    "BYTE": "byte",
    "SHORT": "short",
    "INTEGER": "integer",
    "LONG": "long",
    "REAL": "float",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "TIMESTAMP_LTZ": "timestamp",
    **{text: name for name, text in SQL_NAMES.items()},
}


def schema_of_ddl(text: str) -> str:
    """Return Spark's JSON of a schema.

    Args:
        text: The columns with their types, as in CREATE TABLE.

    Raises:
        ValueError: The text is not such a schema.

    Example:
        id BIGINT NOT NULL, price DECIMAL(10,2), point STRUCT<x: INT, y: INT>
    """
    reader = _Reader(text)
    columns = reader.fields(ends=lambda: reader.token is None)
    return schema_of(columns)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.token: str | None = None
        self._next()

    def fields(self, ends: Callable[[], bool]) -> list[Column]:
        columns = []
        while True:
            name = self._take_name()
            if self.token == ":":
                self._next()
            type_ = self._type()
            is_nullable = True
            if self._is_word("NOT"):
                self._next()
                self._expect("NULL")
                is_nullable = False
            columns.append(Column(name, type_, is_nullable))
            if ends():
                return columns
            self._expect(",")

    def _type(self) -> SparkType:
        word = self._take_name().upper()
        if word == "ARRAY":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        if word == "MAP":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if word == "STRUCT":
            self._expect("<")
            struct = struct_of(self.fields(ends=lambda: self.token == ">"))
            self._expect(">")
            return struct
        if word == "INTERVAL":
            return self._interval()
        name = _SYNONYMS.get(word, word.lower())
        numbers = self._numbers()
        if name == "decimal":
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
            return f"decimal({precision},{scale})"
        if name == "time":
            return f"time({numbers[0] if numbers else 6})"
        if name in ("char", "varchar") and numbers:
            return "string"  # as Spark itself has it in the schema of a DataFrame
        if name in SQL_NAMES and not numbers:
            return name
        raise self._wrong(f"{word} is no type that Beam has a counterpart of")

    def _interval(self) -> str:
        unit = self._take_name().lower()
        if self._is_word("TO"):
            self._next()
            unit += f" to {self._take_name().lower()}"
        return f"interval {unit}"

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self.token != "(":
            return numbers
        while self.token in ("(", ","):
            self._next()
            numbers.append(int(self._take_if(str.isdigit, "a number")))
        self._expect(")")
        return numbers

    def _take_name(self) -> str:
        name = self._take_if(lambda token: token[0] == "`" or token.isidentifier(), "a name")
        return name[1:-1].replace("``", "`") if name[0] == "`" else name

    def _take_if(self, fits: Callable[[str], bool], what: str) -> str:
        token = self.token
        if token is None or not fits(token):
            raise self._wrong(f"{what} was expected, not {token or 'the end'}")
        self._next()
        return token

    def _is_word(self, word: str) -> bool:
        return self.token is not None and self.token.upper() == word

    def _expect(self, token: str) -> None:
        if not self._is_word(token):
            raise self._wrong(f"{token} was expected, not {self.token or 'the end'}")
        self._next()

    def _next(self) -> None:
        if not self._text[self._position :].strip():
            self.token = None
            return
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._wrong(f"{self._text[self._position :].strip()[:20]!r} cannot be read")
        self.token, self._position = match[1], match.end()

    def _wrong(self, problem: str) -> ValueError:
        return ValueError(f"the schema {self._text!r}: {problem}")
