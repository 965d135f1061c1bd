"""Blocks of code in the pages of the documentation, and the commands in them."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.options.declared import DECLARED
from tests.test_docs import PAGES, ROOT

FRAGMENT = "fragment"
RUNS_IN = "runs in: "
NEEDS = frozenset(
    (
        "Docker",
        "Go",
        "Kafka",
        "Redis",
        "Spark",
        "a cluster",
        "a job server",
        "a program of yours",
        "minutes",
        "the network",
    )
)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
_OF_PAGE = re.compile(r"^<!-- blocks need: (.*?) -->$", re.MULTILINE)
# A command in a sentence: it begins like one, and has an argument.
_IN_PROSE = re.compile(r"(?<!`)`((?:[A-Z_]+=\S+ )?(?:python -m|make|pytest) [^`]+)`(?!`)")
_SEPARATORS = {"&&", ";", "|", "||", "&", ">", "(", ")"}


class Block(NamedTuple):
    """A block of code of a page.

    ``mark`` says why the block is not run: ``fragment``, which test runs it, or what it needs; it
    may be empty.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Command(NamedTuple):
    """The words of a command of a page, without variables of the environment."""

    where: str
    words: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        """The names of the options, without dashes and values."""
        return [word[2:].partition("=")[0] for word in self.words if re.match("--[a-z]", word)]


def blocks() -> Iterator[Block]:
    """Yield the blocks of all pages."""
    for page in PAGES:
        text = page.read_text()
        of_page = _OF_PAGE.search(text)
        for match in _BLOCK.finditer(text):
            mark = match["mark"] or (f"needs: {of_page[1]}" if of_page else "")
            line = text.count("\n", 0, match.start("indent")) + 1
            yield Block(page, line, match["language"], match["text"], mark.removeprefix("needs: "))


def commands() -> Iterator[Command]:
    """Yield the commands of all blocks of the shell, and those in sentences."""
    for block in blocks():
        if block.language == "console":
            for typed in typed_in(block.text):
                yield from _split(str(block), typed)
    for page in PAGES:
        text = _BLOCK.sub("", page.read_text())
        for match in _IN_PROSE.finditer(text):
            if "…" not in match[1]:
                yield from _split(str(page.relative_to(ROOT)), " ".join(match[1].split()))


def typed_in(console: str) -> list[str]:
    """Return what is typed at the prompts of a block, one string for each prompt."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", console, re.MULTILINE)


def _split(where: str, typed: str) -> Iterator[Command]:
    """Yield the single commands of a line of the shell."""
    lexer = shlex.shlex(re.sub(r"\\\n|> \S+", " ", typed), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SEPARATORS:
            if not words and re.fullmatch(r"(\.venv/bin/)?python3?", word):
                word = "python"
            if words or not re.match(r"[A-Z_]+=", word):
                words.append(word)
        elif words:
            yield Command(where, tuple(words))
            words = []


@cache
def options_of_pipelines() -> frozenset[str]:
    """Return the names of all options of a pipeline, Beam's and this package's."""
    parser = _Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for kind in PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    return frozenset(re.findall(r"--([\w-]+)", parser.format_help())) | set(DECLARED)


class _Parser(argparse.ArgumentParser):
    """A parser to which classes of options add their arguments, as to Beam's."""

    def add_value_provider_argument(self, *flags: str, **settings: Any) -> None:
        """Add an argument whose value Beam may provide later."""
        self.add_argument(*flags, **settings)


@cache
def options_in(source: Path) -> frozenset[str]:
    """Return the names of options that a file or folder declares, as far as its text shows."""
    files = [source] if source.is_file() else source.rglob("*.py")
    return frozenset(
        name for file in files for name in re.findall(r"[\"']--([\w-]+)[\"']", file.read_text())
    )
