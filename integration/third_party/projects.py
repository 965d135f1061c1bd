"""The projects whose tests are run, by group."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from integration.validates_runner.runners import DIRECT, FN_API

HERE = Path(__file__).parent
OWN = HERE / "own"


class Source(Enum):
    """Where the tests of a project come from."""

    WHEEL = "wheel"
    SDIST = "source distribution"  # the wheel has none
    OWN = "this project"  # there are none in any distribution that could run here


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A distribution on PyPI, with its tests.

    Attributes:
        name: Its name on PyPI. The version is in the requirements of its group.
        targets: The files and folders of tests that use Beam, from the folder of the distribution.
        left_out: Of these, what is not run; the ledger's README has the reasons.
        source: Where they come from.
        in_place_of: Beam's runners that its tests name although any would do.
        plugins: Modules of pytest plugins that its tests need in addition.
        chosen: An expression of pytest's ``-k`` for the tests of the targets that use Beam.
    """

    name: str
    targets: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    source: Source = Source.WHEEL
    in_place_of: tuple[str, ...] = (DIRECT,)
    plugins: tuple[str, ...] = ()
    chosen: str = ""

    @property
    def ledger(self) -> Path:
        """The file of what is expected of its tests; without it, they are held against the peer."""
        return HERE / "ledgers" / f"{self.name.replace('-', '_')}.toml"


_ABSL_FLAGS = "integration.third_party.absl_flags"
_NAMED_RUNNERS = "integration.third_party.named_runners"

GROUPS: Mapping[str, tuple[Project, ...]] = {
    "small": (
        Project(name="asgarde", targets=("tests",), source=Source.SDIST),
        Project(name="pipeline-dp", targets=("pipeline_dp_test.py",), source=Source.OWN),
        Project(name="array-record", targets=("array_record_test.py",), source=Source.OWN),
    ),
    "arrays": (
        Project(name="xarray-beam", targets=("xarray_beam/_src",), plugins=(_ABSL_FLAGS,)),
        Project(
            name="cubed",
            targets=(
                "cubed/tests/test_array_api.py",
                "cubed/tests/test_core.py",
                "cubed/tests/test_executor_features.py",
                "cubed/tests/test_random.py",
            ),
            in_place_of=(FN_API,),
            chosen="beam and not cloud",
        ),
    ),
    "pangeo": (
        Project(
            name="pangeo-forge-recipes",
            targets=("tests",),
            left_out=("tests/test_integration.py", "tests/test_storage.py"),
        ),
    ),
    "datasets": (
        Project(name="mlcroissant", targets=("mlcroissant_test.py",), source=Source.OWN),
        Project(
            name="seqio",
            targets=("seqio/beam_utils_test.py", "seqio/scripts/cache_tasks_test.py"),
            plugins=(_ABSL_FLAGS,),
        ),
        Project(
            name="tensorflow-datasets",
            targets=tuple(
                f"tensorflow_datasets/{path}_test.py"
                for path in (
                    "core/beam_utils",
                    "core/dataset_builder_beam",
                    "core/dataset_builders/adhoc_builder",
                    "core/dataset_builders/view_builder",
                    "core/split_builder",
                    "core/writer",
                    "scripts/cli/build",
                )
            ),
            plugins=(_ABSL_FLAGS, _NAMED_RUNNERS),
        ),
    ),
    "tfx": (
        Project(
            name="tfx-bsl",
            targets=tuple(
                f"tfx_bsl/{path}_test.py"
                for path in (
                    "coders/batch_util",
                    "coders/csv_decoder",
                    "coders/example_coder",
                    "telemetry/collection",
                    "tfxio/csv_tfxio",
                    "tfxio/dataset_tfxio",
                    "tfxio/parquet_tfxio",
                    "tfxio/raw_tf_record",
                    "tfxio/record_based_tfxio",
                    "tfxio/record_to_tensor_tfxio",
                    "tfxio/telemetry",
                    "tfxio/test_util",
                    "tfxio/tf_example_record",
                    "tfxio/tf_sequence_example_record",
                )
            ),
            plugins=(_ABSL_FLAGS,),
        ),
        Project(
            name="tensorflow-transform",
            targets=("tensorflow_transform/beam",),
            plugins=(_ABSL_FLAGS,),
        ),
        Project(
            name="tensorflow-model-analysis",
            targets=("tensorflow_model_analysis",),
            plugins=(_ABSL_FLAGS,),
        ),
    ),
    "airflow": (
        Project(
            name="apache-airflow-providers-apache-beam",
            targets=("airflow_dag_test.py",),
            source=Source.OWN,
        ),
    ),
}
"""From light to heavy. The projects of a group share an environment."""


def requirements_of(group: str) -> Path:
    """Return the file that names the packages of a group's environment."""
    return HERE / "requirements" / f"{group}.txt"


def version_of(project: Project, group: str) -> str:
    """Return the version that a group's requirements name.

    Raises:
        ValueError: They name none.
    """
    for line in requirements_of(group).read_text().splitlines():
        name, _, version = line.partition("==")
        if name.replace("_", "-") == project.name:
            return version
    raise ValueError(f"{requirements_of(group).name} has no line {project.name}==…")
