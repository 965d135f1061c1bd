"""Commands and programs of the documentation run, or a comment in the page says what they need.

A block is run if it has no mark. Marks are ``<!-- needs: minutes -->`` or ``<!-- fragment -->`` on
the line before a block, and ``<!-- blocks need: minutes -->`` anywhere in a page, for all of its
blocks. What is not run is checked as far as that takes no time: options, targets of make, modules
and files that a command names, and the names that a program imports.
"""

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import (
    FRAGMENT,
    NEEDS,
    RUNS_IN,
    Block,
    Command,
    blocks,
    commands,
    options_in,
    options_of_pipelines,
)
from tests.test_docs import ROOT

BLOCKS = list(blocks())
COMMANDS = sorted(set(commands()))
IN_PROCESS = ("--runner=SparkPortableRunner", "--spark_master_url=in-process", "--progress=off")
LANGUAGES = {"", "console", "dockerfile", "ini", "mermaid", "python", "sh", "yaml"}
# Programs of examples that readers are expected to have.
_YOURS = {"pipeline.py", "words.py"}
_OF_SHELL = {
    *(".", "cat", "cd", "docker", "echo", "export", "go", "head", "java", "mkdir", "mvn", "pip"),
    *("pkill", "sleep", "timeout"),
}
_SCRIPTS = ("beam-spark-job-server", "beam-spark-savepoint", "beam-spark-state-store")
_OF_CLUSTERS = {"hdfs", "helm", "kubectl", "spark-submit", "venv-pack"}


def runs(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and not block.mark]


def test_there_are_blocks() -> None:
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert runs("python")
    assert runs("console")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_marks_are_known(block: Block) -> None:
    if block.language == "mermaid":
        assert not block.mark or block.mark.startswith("make diagrams: ")
    elif block.mark.startswith(RUNS_IN):
        assert (ROOT / block.mark.removeprefix(RUNS_IN)).exists()
    else:
        assert not block.mark or block.mark == FRAGMENT or set(block.mark.split(", ")) <= NEEDS


@pytest.mark.parametrize("block", [each for each in BLOCKS if not each.language], ids=str)
def test_blocks_without_a_language_have_no_commands(block: Block) -> None:
    assert not re.search(r"^(\$|python|make|pip|beam-spark-\S+) ", block.text, re.MULTILINE)


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "python"], ids=str)
def test_names_that_programs_import_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for each in node.names:
                is_there = hasattr(module, each.name)
                assert is_there or importlib.util.find_spec(f"{node.module}.{each.name}")
        elif isinstance(node, ast.Import):
            assert all(importlib.util.find_spec(each.name) for each in node.names)


@pytest.mark.slow
@pytest.mark.parametrize("block", runs("python"), ids=str)
def test_programs_run(block: Block, tmp_path: Path) -> None:
    """In a process without Java, by options on its command line."""
    program = tmp_path / "program.py"
    program.write_text(block.text)
    ended = subprocess.run(
        [sys.executable, str(program), *IN_PROCESS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", runs("console"), ids=str)
def test_commands_run(block: Block) -> None:
    script = "\n".join(re.sub(r"^\$ ", "", line) for line in block.text.splitlines())
    ended = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def ids(command: Command) -> str:
    return f"{command.where} {' '.join(command.words)[:60]}"


def of_program(name: str) -> list[Command]:
    """Return the arguments of each command that begins with ``name``, or that timeout begins."""
    found = []
    for command in COMMANDS:
        words = command.words[2:] if command.words[0] == "timeout" else command.words
        if words[0] == name:
            found.append(Command(command.where, words[1:]))
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=ids)
def test_programs_of_commands_are_known(command: Command) -> None:
    known = {"python", "make", "pytest", *_SCRIPTS}
    assert command.words[0] in known | _OF_SHELL | _OF_CLUSTERS or command.words[0].startswith(
        ("$", "/")
    )


@pytest.mark.parametrize("command", of_program("make"), ids=ids)
def test_targets_exist(command: Command) -> None:
    variables = [word.partition("=")[0] for word in command.words if "=" in word]
    targets = [word for word in command.words if "=" not in word]
    text = (ROOT / "Makefile").read_text()
    for name in variables:
        assert re.search(rf"\b{name}\b", text), name
    for target in targets:
        ended = subprocess.run(
            ["make", "--dry-run", "--question", target], cwd=ROOT, capture_output=True, check=False
        )
        assert ended.returncode in (0, 1), target  # 2: there is no such target


@pytest.mark.parametrize("command", of_program("pytest"), ids=ids)
def test_files_of_tests_exist(command: Command) -> None:
    paths = [word.partition("::")[0] for word in command.words if "/" in word]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize("command", of_program("python"), ids=ids)
def test_options_and_modules_exist(command: Command) -> None:
    words = command.words
    if words[0] == "-m":
        found = importlib.util.find_spec(words[1])
        assert found is not None
        assert found.origin is not None
        source = Path(found.origin)
        # The options of a module of the project may be declared anywhere in its folder.
        folder = ROOT / words[1].partition(".")[0]
        if folder.is_dir():
            source = folder / "fuzz" if words[1] == "tests.fuzz" else folder
        takes_pipelines = words[1].startswith(("apache_beam.", "beam_spark_runner"))
        if words[1] == "pytest":
            source = ROOT / "tests" / "conftest.py"
    elif words[0] in _YOURS:
        return
    else:
        source = ROOT / words[0]
        takes_pipelines = True
        assert source.exists()
    known = {"help"} | (options_in(source) if source.exists() else frozenset())
    if takes_pipelines:
        known |= options_of_pipelines()
    assert not [option for option in command.options if option not in known]


def test_options_of_programs_exist() -> None:
    known = {"help"} | options_in(ROOT / "beam_spark_runner") | options_of_pipelines()
    for name in _SCRIPTS:
        for command in of_program(name):
            assert not [option for option in command.options if option not in known], command
