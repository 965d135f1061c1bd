"""Elements of classes of the program's main module, as scripts and notebooks have them."""

from pathlib import Path

import pytest

from tests.harvest import PROCESS
from tests.spark.main_classes import run_kinds

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("library", ["cloudpickle", pytest.param("dill", marks=pytest.mark.rare)])
@pytest.mark.parametrize(
    "flags", [(), pytest.param(PROCESS, marks=pytest.mark.rare)], ids=["embedded", "process"]
)
def test_elements_of_all_kinds_go_all_ways(
    tmp_path: Path, flags: tuple[str, ...], library: str
) -> None:
    """In a session of the program's own, whose workers would run the first Python of ``PATH``."""
    run_kinds(tmp_path, library, *flags, master="local[1]", has_modules=True)


@pytest.mark.rare
@pytest.mark.parametrize("library", ["cloudpickle", "dill"])
def test_executors_that_are_other_processes(tmp_path: Path, library: str) -> None:
    run_kinds(tmp_path, library, master="local-cluster[2,1,1024]")
