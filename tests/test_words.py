"""Documentation and code use none of the words that the glossary lists as not used."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_docs import DOCS, PAGES, ROOT

GLOSSARY = DOCS / "glossary.md"
_LIST = "## Words that are not used"
_MAX_TERMS = 30
_FOLDERS = ("beam_spark_runner", "benchmarks", "build_support", "examples")
CODE = sorted(
    file
    for folder in _FOLDERS
    for file in (ROOT / folder).rglob("*.py")
    if "_generated" not in file.parts
)
# What ends a clause: punctuation, the end of a paragraph or text, and some words.
_CLAUSE_ENDS = (
    r"(?=\s*(?:[][.,;:()|]|\n\s*\n|\n\s*[-*#] |\Z)"
    r"|\s+(?:in|on|for|with|that|as|from|to|by|at|is|are|while|where|when|if|until)\b)"
)
_BETWEEN = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
# What begins and ends a string or a comment.
_MARKS = re.compile(r"^(#:? ?|\w{0,2}(\"\"\"|\"|'))|(\"\"\"|\"|')$")
_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Text(NamedTuple):
    """Something that is written in one piece, and the line where it begins."""

    line: int
    text: str


def banned() -> tuple[list[str], list[str]]:
    """Return the phrases of the list, and its words of constants."""
    rows = re.findall(r"^\| (.*?) \|", GLOSSARY.read_text().partition(_LIST)[2], re.MULTILINE)
    phrases = [phrase for row in rows[1:] for phrase in row.split(", ")]
    constants = [phrase.strip("`") for phrase in phrases if phrase.startswith("`")]
    return [phrase for phrase in phrases if not phrase.startswith("`")], constants


def pattern_of(phrase: str) -> str:
    """Return an expression for a phrase of the list, whose words may be on several lines."""
    words = [r"[\w-]+" if word == "…" else re.escape(word) for word in phrase.strip(".").split()]
    return r"\b" + r"\s+".join(words) + r"\b" + (_CLAUSE_ENDS if phrase.endswith(".") else "")


PHRASES, CONSTANTS = banned()
_BANNED = re.compile("|".join(map(pattern_of, PHRASES)), re.IGNORECASE)


def found(text: Text) -> Iterator[str]:
    """Yield the line and each phrase of a text that is not used."""
    for match in _BANNED.finditer(text.text):
        line = text.line + text.text.count("\n", 0, match.start())
        yield f"{line}: {' '.join(match[0].split())!r}"


def page_text(page: Path) -> Text:
    """Return the text of a page without the targets of links, and without the list itself."""
    text = page.read_text()
    if page == GLOSSARY:
        text = text.partition(_LIST)[0]
    return Text(1, re.sub(r"\]\([^)\s]+\)", "]", text))


def texts_of_code(code: str) -> Iterator[Text]:
    """Yield the comments and strings of a module, and its names as words."""
    text: list[str] = []
    begun, ended, kind = 0, 0, 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        line = token.start[0]
        if token.type in _BETWEEN:
            continue
        is_aside = token.type == tokenize.COMMENT and not token.line.lstrip().startswith("#")
        if text and (token.type != kind or is_aside):
            yield Text(begun, "".join(text))
            text.clear()
        kind = token.type
        if kind == tokenize.NAME:
            yield Text(line, " ".join(_WORDS_OF_NAME.findall(token.string)))
        elif kind in (tokenize.COMMENT, tokenize.STRING):
            begun = begun if text else line
            text += ["\n" * (line - ended) if text else "", _MARKS.sub("", token.string)]
            ended = token.end[0]
        if is_aside:
            kind = 0  # a comment on the next line is another text
    if text:
        yield Text(begun, "".join(text))


def limits(code: str) -> Iterator[str]:
    """Yield names of constants with words that the names of limits do not have."""
    for name in sorted(set(re.findall(r"\b[A-Z_0-9]+\b", code))):
        if set(CONSTANTS) & set(name.split("_")):
            yield name


def test_the_list_is_read() -> None:
    assert "for ever" in PHRASES
    assert "MOST" in CONSTANTS


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("It waits\nfor\never.", ["2: 'for ever'"], id="over two lines"),
        pytest.param("It waits forever.", [], id="the right word"),
        pytest.param("in a thread of its own.", ["1: 'of its own'"], id="at the end of a clause"),
        pytest.param("the options of its own job", [], id="within a clause"),
        pytest.param("those of the epoch before", ["1: 'the epoch before'"], id="a word between"),
        pytest.param("the epoch before this one", [], id="before as a preposition"),
    ],
)
def test_phrases_are_found(text: str, lines: list[str]) -> None:
    assert list(found(Text(1, text))) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param('say("it goes "\n    "on")', ["1: 'goes on'"], id="a message in two parts"),
        pytest.param("x = 1  # that goes\n# on", [], id="two comments"),
        pytest.param("# that goes\n# on", ["1: 'goes on'"], id="one comment"),
        pytest.param("def goes_on(): ...", ["1: 'goes on'"], id="the name of a function"),
        pytest.param("class RunsBeside: ...", ["1: 'Beside'"], id="the name of a class"),
    ],
)
def test_words_of_code_are_found(code: str, lines: list[str]) -> None:
    assert [line for text in texts_of_code(code) for line in found(text)] == lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_other_words(page: Path) -> None:
    assert not [f"{page.relative_to(ROOT)}:{line}" for line in found(page_text(page))]


def test_code_uses_other_words() -> None:
    assert not [
        f"{file.relative_to(ROOT)}:{line}"
        for file in CODE
        for text in texts_of_code(file.read_text())
        for line in found(text)
    ]


def test_constants_have_other_words() -> None:
    assert not [
        f"{file.relative_to(ROOT)}: {name}" for file in CODE for name in limits(file.read_text())
    ]


def test_the_glossary_is_short_and_in_order() -> None:
    text = GLOSSARY.read_text().partition(_LIST)[0]
    terms = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)[1:]
    assert len(terms) <= _MAX_TERMS
    assert terms == sorted(terms)
