"""What documentation lists, and what there is."""

import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner import errors
from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.job.run import users_errors
from beam_spark_runner.options.declared import DECLARED
from tests.test_layers import FILES, LAYERS, PACKAGE, ROOMS, dotted

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROOMS_PAGES = (ROOT / "beam_spark_runner").rglob("*.md")
USERS_PAGES = {*ROOT.glob("*.md"), *DOCS.rglob("*.md")}
PAGES = sorted([*USERS_PAGES, *ROOMS_PAGES])
INDEXES = (DOCS / "README.md", DOCS / "adr" / "README.md")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MAX_WORDS_OF_A_CELL = 25
# What newcomers ask first: how do I test a pipeline? Why is it slow? It ran out of memory? How do I
# start Kafka? How do I upgrade a stream? Which versions of Spark work? Where would I add a kind of
# user state?
_FIRST_ANSWERS = (
    "docs/testing.md",
    "docs/troubleshooting.md#the-job-is-slow",
    "docs/troubleshooting.md#running-out-of-memory",
    "docs/kafka_tutorial.md#1-start-a-broker",
    "docs/operations.md#upgrading-a-running-stream",
    "docs/features.md#versions",
    "docs/architecture.md#where-new-code-goes",
)
# Its tables show ways through the code, a line for each step.
LONG_CELLS = frozenset({DOCS / "architecture.md"})


def import_all_errors() -> None:
    """Import every file that may have a class of them."""
    for file in FILES:
        if re.search(r"^class \w+Error\(", file.read_text(), re.MULTILINE):
            importlib.import_module(dotted(file))


def classes(kind: type[RunnerError], depth: int = 0) -> Iterator[tuple[int, type[RunnerError]]]:
    """Yield a class and all below it, with their depth."""
    yield depth, kind
    for each in kind.__subclasses__():
        # What tests have made: an error's own class together with one of user code.
        is_mixed = issubclass(each, users_errors._OfUsersClass)
        if each.__module__.startswith("beam_spark_runner.") and not is_mixed:
            yield from classes(each, depth + 1)


def test_the_tree_of_errors_is_complete() -> None:
    import_all_errors()
    text = (DOCS / "errors.md").read_text()
    tree = text[text.index("RunnerError (") :]
    listed = [
        (len(match[1]) // 2, match[2])
        for match in re.finditer(r"^([│├└ ]*)(\w+Error)\b", tree, re.MULTILINE)
    ]
    assert sorted(listed) == sorted((depth, each.__name__) for depth, each in classes(RunnerError))


def test_all_errors_can_be_imported_from_one_place() -> None:
    import_all_errors()
    assert {errors.RunnerError, *(getattr(errors, name) for name in errors.__all__)} == {
        each for _, each in classes(RunnerError)
    }


def test_errors_can_be_pickled() -> None:
    import_all_errors()
    for _, kind in classes(RunnerError):
        fields = list(inspect.signature(kind.__init__).parameters)[1:]
        error = kind(*("some" for field in fields if field not in ("args", "kwargs")))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error)


def test_every_layer_and_room_is_described() -> None:
    text = (DOCS / "architecture.md").read_text()
    described = set(
        re.findall(r"^ *(\w+)/? {2,}", text[: text.index("\n## How a pipeline runs")], re.MULTILINE)
    )
    layers = {name for names in LAYERS for name in names} - {"__init__", "import_hook"}
    assert layers <= described
    assert {room for rooms in ROOMS.values() for room in rooms if room} <= described


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_option_has_a_row(name: str) -> None:
    assert re.search(rf"^\|[^|]*`--{name}\b", (DOCS / "options.md").read_text(), re.MULTILINE)


def test_the_help_of_every_option_is_a_sentence() -> None:
    for name, settings in DECLARED.items():
        assert re.fullmatch(r"[A-Z].*\.", settings["help"]), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in LONG_CELLS],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_cells_of_tables_are_short(page: Path) -> None:
    """A cell that needs more words belongs below the table."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    long = [
        cell.strip()
        for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
        for cell in re.split(r"(?<!\\)\|", row)
        if len(_LINK.sub("]", cell).split()) > _MAX_WORDS_OF_A_CELL
    ]
    assert not long


@pytest.mark.parametrize("target", _FIRST_ANSWERS)
def test_what_newcomers_ask_is_one_click_away(target: str) -> None:
    """Of README, and of the questions in the index."""
    readme, index = (page.read_text() for page in (ROOT / "README.md", INDEXES[0]))
    assert f"({target})" in readme
    questions = index.partition("## Frequently asked questions")[2]
    assert f"({target.removeprefix('docs/')})" in questions


def test_every_page_is_in_an_index() -> None:
    targets = {(index, target) for index in INDEXES for target in _LINK.findall(index.read_text())}
    named = {(index.parent / target.partition("#")[0]).resolve() for index, target in targets}
    assert not USERS_PAGES - named - {INDEXES[0]}


@pytest.mark.parametrize(
    # Paths of the conformance page are those of Beam.
    "page",
    [page for page in PAGES if page.name != "conformance.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_files_of_the_package_that_pages_name_exist(page: Path) -> None:
    roots = (PACKAGE, ROOT, *(PACKAGE / folder for folder in ROOMS), PACKAGE / "engine" / "stages")
    # What pages write into ``out`` is there only if somebody has run them.
    first = {path.stem for root in roots for path in root.iterdir()} - {"out"}
    for path in re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+)(?:\.py)?/?`", page.read_text()):
        if path.partition("/")[0] in first:
            assert any(
                (root / path).exists() or (root / f"{path}.py").exists() for root in roots
            ), path


def anchors(page: Path) -> set[str]:
    """Return those of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
