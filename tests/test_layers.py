"""The law of the layers: imports go down, and impure libraries stay where they belong."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "beam_spark_runner"
# Highest first. Names in one row are siblings: they never import each other.
LAYERS = (
    ("__init__",),
    ("make_class_archive", "plans"),
    ("runner", "__main__", "savepoint", "state_store", "errors"),
    ("job",),
    ("in_process", "spark"),
    ("driving",),
    ("engine",),
    ("harness",),
    ("backchannel",),
    ("state",),
    ("portable",),
    ("semantics",),
    ("observing",),
    ("scheduling", "recovery"),
    ("plan",),
    ("graph",),
    ("options", "transforms"),
    ("storage",),
    ("core", "_generated", "import_hook"),
)
# Within a folder, highest first. "": the files that lie in the folder itself, its contract.
ROOMS = {
    "spark": ("driver", "session", "worker", ""),
    "engine": ("task", "stages", "worker", "side_inputs", "rows", ""),
    "harness": (
        "remote",
        "environments",
        "fn_api",
        "grouping",
        "beam",
        "sdf",
        "codec",
        "values",
        "",
    ),
    "state": ("remote", ""),
    "job": (
        "server",
        "client",
        "export",
        "page",
        "run",
        "files",
        "event_store",
        "watching",
        "prepare",
        "",
    ),
}
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
PURE = {"observing", "scheduling", "recovery", "plan", "graph", "core", "_generated", "import_hook"}
# Machines in other layers: as pure as these, so that they can be tested without their threads.
PURE_FILES = (
    "backchannel/conversation.py",
    "backchannel/message_counts.py",
    "backchannel/outbox.py",
    *(
        f"job/page/{name}.py"
        for name in (
            *(
                "api_forms",
                "drawing",
                "folding",
                "job_view",
                "graph_layout",
                "openapi",
                "page_query",
            ),
            *("step_states", "step_view", "texts"),
        )
    ),
)
IMPURE = set(RANK) - PURE
# Who may import which library that does not come with Python. Whatever is missing, nobody may.
MAY_IMPORT = {
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "pyarrow": {"spark", "in_process", "driving", "engine", "transforms"},
    "grpc": {"harness", "job"},
    "grpc_health": {"job"},
    "prometheus_client": {"job"},
    "starlette": {"job"},
    "uvicorn": {"job"},
    "jinja2": {"job"},
    "openlineage": {"job"},
    "google": {"_generated", "portable", "backchannel", "harness", "job"},
    "numpy": {"core", "driving", "engine", "harness", "in_process", "spark", "transforms"},
    "memray": {"engine"},
    "xxhash": {"core", "state"},
    "lmdb": {"state"},
    "redis": {"state"},
    "zstandard": {"state"},
    "obstore": {"storage"},
    "requests": {"storage"},
    "urllib3": {"storage"},
    "requests_gssapi": {"storage"},
    "gssapi": {"storage"},
    "confluent_kafka": {"transforms"},
    "greenlet": {"transforms"},
    "apache_beam": IMPURE,
    "typing_extensions": set(RANK),
}
# What pure code may import of Python: nothing that knows files, processes, threads or the clock.
PURE_MODULES = {
    *(
        "abc",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "html",
        "keyword",
    ),
    *("itertools", "json", "math", "re", "reprlib", "statistics", "struct", "traceback", "types"),
    "typing",
}
# Functions of modules that have others, too, which reach outside.
PURE_FUNCTIONS = {"urllib.parse.quote", "urllib.parse.urlencode"}
PYTHONS_OWN = {
    **dict.fromkeys(PURE, PURE_MODULES),
    "import_hook": {"sys"},
    "semantics": PURE_MODULES,
    # It has no thread and no clock of its own: whoever starts a run provides them.
    "driving": PURE_MODULES | {"logging", "pathlib"},
    "observing": PURE_MODULES | {"datetime"},
}
# Functions of Python's that reach outside of the process without an import.
REACH_OUTSIDE = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
# What the semantics of time may know of Beam: values, and no machinery.
VALUES_OF_BEAM = ("apache_beam.transforms.", "apache_beam.utils.")
# Test folders that are about something else than a folder of the package.
OWN_TEST_FOLDERS = {"conformance", "simulation"}
# Where Beam's internals may be used: what ``apache_beam`` promises nobody.
BEAMS_INTERNALS = ("apache_beam.runners.worker", "apache_beam.runners.common")
# A thread of user code counts its metrics where Beam's harness finds them.
USERS_OF_INTERNALS = ("harness/beam", "transforms/full_window/threaded.py")
FILES = sorted(PACKAGE.rglob("*.py"))
# Files of one name: ports and what implements them, errors and options of packages of their own.
FAMILIES = {
    *("__init__", "model"),
    *("cluster", "session", "tables"),
    *("errors", "config", "read", "write"),
}


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that run-time code under ``node`` imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from (name for name in imports(child) if name.startswith(PACKAGE.name))
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_stay_or_go_down(file: Path) -> None:
    layer = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert layer in RANK, f"{layer} has no place among the layers"
    for name in imports(ast.parse(file.read_text())):
        library, *inner = name.split(".")
        if library == PACKAGE.name:
            assert inner[0] == layer or RANK[inner[0]] > RANK[layer], f"{layer} imports {name}"
        elif library in sys.stdlib_module_names:
            assert library in PYTHONS_OWN.get(layer, {library}), f"{layer} imports {name}"
        else:
            assert layer in MAY_IMPORT.get(library, ()), f"{layer} imports {name}"


@pytest.mark.parametrize("file", PURE_FILES)
def test_machines_import_only_what_is_pure(file: str) -> None:
    for name in imports(ast.parse((PACKAGE / file).read_text())):
        library, *inner = name.split(".")
        if library == PACKAGE.name:
            is_machine = "/".join(inner[:-1]) + ".py" in PURE_FILES
            assert inner[0] in PURE or is_machine, f"{file} imports {name}"
        else:
            is_pure = library in {*PURE_MODULES, "typing_extensions"} or name in PURE_FUNCTIONS
            assert is_pure, f"{file} imports {name}"


@pytest.mark.parametrize("layer", sorted(PURE | {"semantics", *PURE_FILES}))
def test_pure_layers_reach_nothing_outside(layer: str) -> None:
    for file in FILES:
        path = file.relative_to(PACKAGE)
        if layer not in (path.parts[0].removesuffix(".py"), path.as_posix()):
            continue
        calls = [
            node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
        ]
        called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert not called & REACH_OUTSIDE or file.name == "import_hook.py", file


def test_the_semantics_know_values_of_beam_only() -> None:
    for file in (PACKAGE / "semantics").rglob("*.py"):
        for name in imports(ast.parse(file.read_text())):
            assert not name.startswith("apache_beam") or name.startswith(VALUES_OF_BEAM), file


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_within_a_folder_stay_in_their_room_or_go_down(file: Path) -> None:
    folder, *rest = file.relative_to(PACKAGE).parts
    rooms = ROOMS.get(folder)
    if rooms is None:
        return
    room = rest[0] if len(rest) > 1 else ""
    for name in imports(ast.parse(file.read_text())):
        if name.startswith(f"{PACKAGE.name}.{folder}."):
            first = name.split(".")[2]
            other = first if (PACKAGE / folder / first).is_dir() else ""
            assert rooms.index(other) >= rooms.index(room), f"{folder}/{room} imports {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_only_one_room_uses_the_internals_of_beam(file: Path) -> None:
    if file.relative_to(PACKAGE).as_posix().startswith(USERS_OF_INTERNALS):
        return
    for name in imports(ast.parse(file.read_text())):
        is_private = name.startswith("apache_beam.") and "._" in name
        is_internal = is_private or name.startswith(BEAMS_INTERNALS)
        assert not is_internal, name


def test_only_families_share_a_file_name() -> None:
    counts = Counter(file.stem for file in FILES)
    assert {name for name, count in counts.items() if count > 1} == FAMILIES


def test_the_page_knows_what_is_observed_and_only_one_of_its_files_knows_jobs() -> None:
    allowed = ("job.page.", "observing.", "core.", "options.")
    knowing = {"gathering.py", "shown_job.py", "program_page.py"}
    for file in (PACKAGE / "job" / "page").glob("*.py"):
        for name in imports(ast.parse(file.read_text())):
            inner = name.removeprefix(f"{PACKAGE.name}.")
            if inner != name and file.name not in knowing:
                assert inner.startswith(allowed), f"{file.name} imports {name}"


def private_names(file: Path) -> set[str]:
    """Return the private attributes of other objects that a file reads or writes."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if name.startswith("_") and not name.endswith("__"):
                found.add(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
    return found


def test_only_one_file_uses_the_internals_of_pyspark() -> None:
    internals = PACKAGE / "spark" / "pyspark_internals.py"
    known = private_names(internals)
    assert {"_jsc", "_ensure_initialized", "_pickled_broadcast_vars"} <= known
    for file in FILES:
        if file != internals:
            assert not private_names(file) & known, file


def test_no_imports_go_in_a_circle() -> None:
    imported = {dotted(file): set(imports(ast.parse(file.read_text()))) for file in FILES}
    # A name that is no module is one of a module's.
    graph = {
        name: {other if other in imported else other.rpartition(".")[0] for other in others}
        for name, others in imported.items()
    }
    TopologicalSorter(graph).prepare()


def dotted(file: Path) -> str:
    """Return the name by which a module is imported."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_no_file_is_longer_than_400_lines() -> None:
    folders = ("benchmarks", "build_support", "examples", "integration", "tests", PACKAGE.name)
    files = [file for each in folders for file in (PACKAGE.parent / each).rglob("*.py")]
    assert set(FILES) < set(files)
    long = {
        str(file.relative_to(PACKAGE.parent))
        for file in files
        if "_generated" not in file.parts and len(file.read_text().splitlines()) > 400
    }
    assert not long


def test_every_layer_and_room_has_its_rank() -> None:
    assert {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in FILES} == set(RANK)
    for folder, rooms in ROOMS.items():
        found = {
            each.name for each in (PACKAGE / folder).iterdir() if (each / "__init__.py").exists()
        }
        assert found == set(rooms) - {""}


def test_folders_of_unit_tests_are_folders_of_the_package() -> None:
    unit = Path(__file__).parent / "unit"
    folders = {file.parent.relative_to(unit) for file in unit.rglob("test_*.py")} - {Path()}
    for folder in folders:
        assert folder.parts[0] in OWN_TEST_FOLDERS or (PACKAGE / folder).is_dir(), folder


def test_every_test_module_has_a_separate_name() -> None:
    # pytest imports them by that name, and Python's workers unpickle their functions by it.
    names = [file.name for file in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def test_one_file_compares_versions_of_spark() -> None:
    compared = re.compile(r"[vV]ersion\b[^\n]*(<|>)=? \(\d|\(\d, \d+\) (<|>)=? ")
    found = {str(file.relative_to(PACKAGE)) for file in FILES if compared.search(file.read_text())}
    assert found == {"spark/versions.py"}
