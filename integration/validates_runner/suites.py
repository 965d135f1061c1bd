"""The suites: what of Beam's wheel each holds, and how it is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.validates_runner.runners import FN_API, UNDER_TEST

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Some of Beam's tests."""

    targets: tuple[str, ...]  # paths below apache_beam/, or a path of this folder
    left_out: tuple[str, ...] = ()  # paths below apache_beam/ that another suite holds
    marker: str | None = None
    sets_options: bool = False  # TestPipeline gets the runner by options, as in Beam's own CI
    stores_files: bool = False  # and a folder for the files of its tests
    in_place_of: tuple[str, ...] = ()  # runners that its tests pin, though any would do
    is_quick: bool = False  # part of ``make test``
    peers_lack: str = ""  # what it needs, and Beam's local runners do not have
    wants_expansion_service: bool = False  # by the environment variable EXPANSION_PORT
    part_of: str = ""  # the suite that has its tests, too; it runs only if it is named


FN_RUNNER = HERE / "fn_runner_suite.py"
PORTABLE_RUNNER = HERE / "portable_runner_suite.py"
CROSS_LANGUAGE = HERE / "cross_language_suite.py"
_WINDOWS = "transforms/window_test.py"
_SIDE_INPUTS = "transforms/sideinputs_test.py"
_TRIGGERS = "transforms/trigger_test.py"
_XLANG = "transforms/validate_runner_xlang_test.py"
_TEST_PIPELINE = "testing/test_pipeline_test.py"  # fails where TestPipeline has options
_SLEEPS = "transforms/async_dofn_test.py"  # for ten minutes, and drives no pipeline
_MEASURES = "ml/anomaly/univariate/perf_test.py"  # for minutes, and drives no pipeline

SUITES = {
    "FnApiRunnerTest": Suite(targets=(str(FN_RUNNER),), is_quick=True),
    "PortableRunnerTest": Suite(targets=(str(PORTABLE_RUNNER),), peers_lack="job service"),
    "it_validatesrunner": Suite(
        targets=(
            "pipeline_test.py",
            "transforms/combinefn_lifecycle_test.py",
            "transforms/deduplicate_test.py",
            "transforms/combiners_test.py",
            "transforms/dofn_lifecycle_test.py",
            "transforms/util_test.py",
            _SIDE_INPUTS,
            "transforms/ptransform_test.py",
            "metrics/metric_test.py",
            "runners/portability/fn_api_runner/translations_test.py",
            "ml/inference/base_test.py",
        ),
        marker="it_validatesrunner",
        sets_options=True,
        is_quick=True,
    ),
    "windows": Suite(targets=(_WINDOWS,), is_quick=True),
    "side inputs": Suite(targets=(_SIDE_INPUTS,)),
    "triggers": Suite(targets=(_TRIGGERS,), in_place_of=(FN_API,)),
    "transforms": Suite(
        targets=("transforms",),
        left_out=(_WINDOWS, _SIDE_INPUTS, _TRIGGERS, _XLANG, _SLEEPS),
        sets_options=True,
    ),
    "user state": Suite(
        targets=("transforms/userstate_test.py",), sets_options=True, part_of="transforms"
    ),
    "cross-language": Suite(
        targets=(_XLANG,), peers_lack="environments of processes", wants_expansion_service=True
    ),
    "cross-language, job server": Suite(
        targets=(str(CROSS_LANGUAGE),), peers_lack="job service", wants_expansion_service=True
    ),
    "pipeline and core": Suite(
        targets=("pipeline_test.py", "pvalue_test.py", "metrics", "typehints", "coders")
    ),
    "examples/snippets": Suite(targets=("examples/snippets",)),
    "examples": Suite(
        targets=("examples",),
        left_out=("examples/snippets",),
        sets_options=True,
        stores_files=True,
        in_place_of=("PrismRunner",),
    ),
    "testing": Suite(
        targets=("testing",),
        left_out=(_TEST_PIPELINE,),
        sets_options=True,
        in_place_of=("DirectRunner",),
    ),
    "io": Suite(targets=("io",)),
    "dataframe": Suite(targets=("dataframe",)),
    "yaml": Suite(targets=("yaml",)),
    "ml": Suite(targets=("ml",), left_out=(_MEASURES,)),
}
"""In the order of the table."""


def is_ours(test: str) -> bool:
    """Whether a test is of this folder's files, by its id."""
    return test.startswith(f"{HERE.relative_to(ROOT)}/")


def pytest_arguments(suite: Suite, beam: Path, tests: Sequence[str] = ()) -> list[str]:
    """Return what pytest collects.

    Args:
        suite: of ``SUITES``.
        beam: the installed package's folder.
        tests: ids of those to run; none: all.
    """
    if tests:
        arguments = [str((ROOT if is_ours(test) else beam.parent) / test) for test in tests]
    else:
        arguments = [str(beam / target) for target in suite.targets]
    for path in suite.left_out:
        arguments.append(f"--ignore={beam / path}")
    if suite.marker:
        arguments += ["-m", suite.marker]
    arguments += [f"--conformance-in-place-of={runner}" for runner in suite.in_place_of]
    options = [f"--runner={UNDER_TEST}"] if suite.sets_options else []
    if suite.stores_files:
        options.append(f"--temp_location={ROOT}/build/conformance/files")
    if options:
        arguments.append(f"--conformance-options={' '.join(options)}")
    return arguments
