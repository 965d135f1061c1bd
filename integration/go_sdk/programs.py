"""Go's test programs: where their sources are, and how they are built and asked."""

import json
import os
import re
import subprocess
from pathlib import Path

BEAM_MODULE = "github.com/apache/beam/sdks/v2"
_IDLE = ("nice", "-n", "10")
_TEST = re.compile(r"Test\w*")

PACKAGES = (
    "go/test/integration/primitives",
    "go/test/integration/wordcount",
    "go/test/integration/synthetic",
    "go/test/regression",
    "go/pkg/beam",
    "go/pkg/beam/testing/passert",
    "go/pkg/beam/transforms/batch",
    "go/pkg/beam/transforms/filter",
    "go/pkg/beam/transforms/periodic",
    "go/pkg/beam/transforms/stats",
    "go/pkg/beam/transforms/top",
    "go/pkg/beam/io/avroio",
    "go/pkg/beam/io/databaseio",
    "go/pkg/beam/io/fileio",
    "go/pkg/beam/io/natsio",
    "go/pkg/beam/io/parquetio",
    "go/pkg/beam/io/spannerio",
    "go/pkg/beam/io/textio",
    "go/pkg/beam/x/debug",
    "go/examples/large_wordcount",
    "go/examples/snippets",
)
"""Those whose tests take the runner from the command line (``ptest.Main``), and need no cloud."""


def sources(version: str) -> Path:
    """Return the folder of the Go SDK's sources, downloaded from Go's module proxy if need be.

    Raises:
        RuntimeError: it cannot be had; with the words of ``go``.
    """
    found = _go("mod", "download", "-json", f"{BEAM_MODULE}@v{version}", folder=Path.home())
    return Path(json.loads(found)["Dir"])


def build(package: str, sources: Path, to: Path) -> Path:
    """Compile the test program of a package, unless it is there; return its path.

    Raises:
        RuntimeError: it cannot be compiled; with the words of ``go``.
    """
    return _built(to / (package.replace("/", "_") + ".test"), package, sources, "test", "-c")


def build_main(package: str, sources: Path, to: Path) -> Path:
    """Compile the program that a package is, unless it is there; return its path.

    Raises:
        RuntimeError: it cannot be compiled; with the words of ``go``.
    """
    return _built(to / package.replace("/", "_"), package, sources, "build")


def _built(program: Path, package: str, sources: Path, *command: str) -> Path:
    if not program.exists():
        # Under another name first: a build that is broken off leaves nothing that looks whole.
        half = program.with_suffix(".half")
        program.parent.mkdir(parents=True, exist_ok=True)
        _go(*command, "-o", str(half), f"./{package}", folder=sources)
        half.rename(program)
    return program


def tests_of(program: Path, folder: Path) -> list[str]:
    """List the tests of a program, in its own order."""
    said = subprocess.run(
        [program, "-test.list", "."], cwd=folder, check=True, capture_output=True, text=True
    )
    return [line for line in said.stdout.splitlines() if _TEST.fullmatch(line)]


def _go(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [*_IDLE, "go", *arguments],
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod" if arguments[0] == "mod" else "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
