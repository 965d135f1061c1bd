"""Beam's private names: the files that use them, and what this project takes them for."""

import ast
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import apache_beam as beam
import pytest
from apache_beam.coders import coders
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.io import (
    avroio,
    filebasedsource,
    fileio,
    iobase,
    parquetio,
    range_trackers,
    textio,
    tfrecordio,
    unbounded_source,
)
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import HadoopFileSystemOptions, PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.runners import common, runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.worker import bundle_processor, operations, sdk_worker
from apache_beam.testing import test_stream
from apache_beam.transforms import core, sideinputs
from apache_beam.utils import multi_process_shared

from beam_spark_runner.harness.beam import coded_types
from tests.beam_names import beam_names

PACKAGE = Path(__file__).parents[1] / "beam_spark_runner"
ROOM = "harness/beam"
# Of Python's own: named tuples, frames, the end of a process, argparse, threads being started.
_PYTHONS = {
    *("_replace", "_asdict", "_fields", "_getframe", "_exit", "_option_string_actions"),
    "_run_exitfuncs",  # tests/harness/test_job_server_ends.py: no temporary files are left
    "_register_atexit",  # tests/cli/test_programs_that_do_not_wait.py
    *("_limbo", "_active_limbo_lock"),  # tests/unit/engine/task/test_interruptible.py
}
ELSEWHERE = {
    "harness/failures.py": {"_tagged_with_step"},  # errors of every room
    "import_hook.py": {"_RUNNER_MAP"},  # must not import anything else of this package
    # Ours takes the place of a result.
    "job/client/submitted.py": {"_message_stream", "_state_stream"},
    # What was set, and what is a default; all options of a view at once.
    "options/read_options.py": {"_flags", "_all_options", "_visible_options"},
    "options/spelling.py": {"_flags", "_add_argparse_args"},  # what was given, what is declared
    "portable/coders.py": {"_known_urns"},  # which coders Beam has; others become bytes
    "portable/wire.py": {"_get_component_coders"},  # whether a window has its length in front
    "transforms/declarative/keyed_steps.py": {"_pcolls"},  # outputs of a step with an expansion
}
"""Outside of the room for Beam's internals, with the reason."""
PYSPARKS = "spark/pyspark_internals.py"


def foreign_private_names(file: Path) -> set[str]:
    """Return the private attributes that a file uses, and does not define itself."""
    tree = ast.parse(file.read_text())
    used, own, beams = set(), set(), set()
    imported = {name.rpartition(".")[2] for name in beam_names(file)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in imported:
                beams.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                used.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                own.add(name)
    return {
        name
        for name in (used - own - _PYTHONS) | beams
        if name.startswith("_") and not name.endswith("__")
    }


FOUND = {
    file.relative_to(PACKAGE).as_posix(): names
    for file in sorted(PACKAGE.rglob("*.py"))
    if "_generated" not in file.parts and (names := foreign_private_names(file))
}


def test_only_the_rooms_for_internals_use_private_names() -> None:
    elsewhere = {
        file: names
        for file, names in FOUND.items()
        if not file.startswith(ROOM) and file != PYSPARKS
    }
    assert elsewhere == ELSEWHERE


def _is_set_by(owner: Any, *names: str) -> bool:
    text = inspect.getsource(owner.__init__)
    return all(f"self.{name} = " in text for name in names)


def _parameters_of(function: Callable[..., object]) -> list[str]:
    return [*inspect.signature(function).parameters]


class _InBatches(beam.DoFn):  # type: ignore[misc]
    @beam.DoFn.yields_batches  # type: ignore[untyped-decorator]
    def process(self, element: int) -> None: ...


PROOFS: dict[str, Callable[[], object]] = {
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS": lambda: (
        type(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS) is WeakKeyDictionary
    ),
    "_DYNAMIC_CLASS_TRACKER_BY_ID": lambda: (
        type(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID) is WeakValueDictionary
    ),
    "_DoFnParam": lambda: isinstance(beam.DoFn.TimestampParam, core._DoFnParam),
    "_FastAvroSink": lambda: issubclass(avroio._FastAvroSink, FileBasedSink),
    "_KeyWithNone": lambda: [*core._KeyWithNone().process(1)] == [(None, 1)],
    "_MoveTempFilesIntoFinalDestinationFn": lambda: (
        _parameters_of(fileio._MoveTempFilesIntoFinalDestinationFn.process)
        == ["self", "element", "w"]
        and _is_set_by(
            fileio._MoveTempFilesIntoFinalDestinationFn,
            *("path", "file_naming_fn", "temporary_directory"),
        )
    ),
    "_OutputHandler": lambda: issubclass(common._OutputHandler, common.OutputHandler),
    "_ParquetSink": lambda: issubclass(parquetio._ParquetSink, FileBasedSink),
    **{
        name: functools.partial(_is_set_by, kind, name)
        for kind, names in {
            core.CallableWrapperCombineFn: ("_buffer_size", "_fn"),
            filebasedsource._SingleFileSource: ("_file_name", "_file_based_source"),
            filebasedsource._ReadRange: ("_source_from_file", "_with_filename"),
            range_trackers.UnsplittableRangeTracker: ("_range_tracker",),
            range_trackers.OffsetRangeTracker: ("_last_attempted_record_start",),
            textio._TextSource: ("_delimiter", "_escapechar", "_strip_trailing_newlines"),
        }.items()
        for name in names
    },
    "_RUNNER_MAP": lambda: runner._RUNNER_MAP["directrunner"],
    "_ReadFromUnboundedSourceDoFn": lambda: issubclass(
        unbounded_source._ReadFromUnboundedSourceDoFn, beam.DoFn
    ),
    "_ReaderCache": lambda: unbounded_source._ReaderCache().close_all() is None,
    "_TFRecordSink": lambda: (
        # Its files begin and end with records.
        issubclass(tfrecordio._TFRecordSink, FileBasedSink)
        and not {"open", "close"} & vars(tfrecordio._TFRecordSink).keys()
    ),
    "_TaggedReceivers": lambda: issubclass(operations._TaggedReceivers, dict),
    "_TestStreamFormatter": lambda: test_stream._TestStreamFormatter.PREV_SAMPLE_TIME_STATE,
    "_TextSource": lambda: _parameters_of(textio._TextSource.ReadBuffer) == ["data", "position"],
    "_create_sdf_bounded_source_dofn": lambda: (
        _parameters_of(iobase.SDFBoundedSourceReader()._create_sdf_bounded_source_dofn().process)
        == ["unused_element", "restriction_tracker"]
    ),
    "_process_header": lambda: (
        _parameters_of(textio._TextSource._process_header)
        == ["self", "file_to_read", "read_buffer"]
    ),
    "_TextSink": lambda: issubclass(textio._TextSink, FileBasedSink),
    "_TimingEventGenerator": lambda: issubclass(test_stream._TimingEventGenerator, beam.DoFn),
    "_add_argparse_args": lambda: _parameters_of(PipelineOptions._add_argparse_args) == ["parser"],
    "_all_options": lambda: PipelineOptions(parallelism=3)._all_options["parallelism"] == 3,
    "_beam_yields_batches": lambda: _InBatches.process._beam_yields_batches,
    "_check_orphaned_files": lambda: (
        _parameters_of(fileio._MoveTempFilesIntoFinalDestinationFn._check_orphaned_files)[1:]
        == ["writer_key"]
    ),
    "_coder": lambda: _is_set_by(test_stream._TestStreamFormatter, "_coder", "_output_format"),
    "_create_type": lambda: (  # dill is an extra
        pickler.dill_pickler is None
        or _parameters_of(pickler.dill_pickler.dill.dill._create_type) == ["typeobj", "args"]
    ),
    "_create_pardo_operation": lambda: (
        [*inspect.signature(bundle_processor._create_pardo_operation).parameters][:6]
        == [
            "factory",
            "transform_id",
            "transform_proto",
            "consumers",
            "serialized_fn",
            "pardo_proto",
        ]
    ),
    "_events": lambda: (
        type(test_stream.TestStream().add_elements(["a"])._events[-1]) is test_stream.ElementEvent
    ),
    "_execute": lambda: (
        [*inspect.signature(sdk_worker.SdkHarness._execute).parameters]
        == ["self", "task", "request"]
    ),
    "_append_trailing_newlines": lambda: _is_set_by(textio._TextSink, "_append_trailing_newlines"),
    "_schema": lambda: _is_set_by(parquetio._ParquetSink, "_schema"),
    "_use_compliant_nested_type": lambda: _is_set_by(
        parquetio._ParquetSink, "_use_compliant_nested_type"
    ),
    "_use_deprecated_int96_timestamps": lambda: _is_set_by(
        parquetio._ParquetSink, "_use_deprecated_int96_timestamps"
    ),
    "_footer": lambda: _is_set_by(textio._TextSink, "_footer"),
    "_header": lambda: _is_set_by(textio._TextSink, "_header"),
    "_flags": lambda: PipelineOptions(["--some=1"])._flags == ["--some=1"],
    "_get_arg_placeholders": lambda: common._get_arg_placeholders,
    "_get_final_name": lambda: (
        _parameters_of(FileBasedSink._get_final_name) == (["self", "shard_num", "num_shards", "w"])
    ),
    "_get_final_name_glob": lambda: (
        _parameters_of(FileBasedSink._get_final_name_glob)[1:] == ["num_shards", "w"]
    ),
    "_report_sink_lineage": lambda: (
        _parameters_of(FileBasedSink._report_sink_lineage)[1:] == ["dst_glob", "dst_files"]
    ),
    "_finalize_write": lambda: (
        _parameters_of(iobase._finalize_write)[:4]
        == ["unused_element", "sink", "init_result", "write_results"]
    ),
    "_finalize_windowed_write": lambda: (
        _parameters_of(iobase._finalize_windowed_write)[:4]
        == ["unused_element", "sink", "init_result", "write_results"]
    ),
    "_get_component_coders": lambda: coders.IterableCoder(
        coders.BytesCoder()
    )._get_component_coders(),
    "_global_window_mapping_fn": lambda: (
        sideinputs.default_window_mapping_fn(beam.window.GlobalWindows())
        is sideinputs._global_window_mapping_fn
    ),
    "_known_urns": lambda: "beam:coder:varint:v1" in coders.Coder._known_urns,
    "_main_module": lambda: (
        pickler.dill_pickler is None
        or inspect.ismodule(pickler.dill_pickler.dill.dill._main_module)
    ),
    "_message_stream": lambda: _is_set_by(portable_runner.PipelineResult, "_message_stream"),
    "_output_format": lambda: _is_set_by(test_stream._TestStreamFormatter, "_output_format"),
    "_output_tag": lambda: _is_set_by(test_stream._TimingEventGenerator, "_output_tag"),
    "_pcolls": lambda: beam.pvalue.DoOutputsTuple(None, None, (), None)._pcolls == {},
    "_pipeline_options": lambda: (
        "FileSystems._pipeline_options" in inspect.getsource(FileSystems.get_filesystem)
    ),
    "_process_level_singleton_manager": lambda: (
        type(multi_process_shared._process_level_singleton_manager.entries) is dict
    ),
    "_process_batch_defined": lambda: beam.DoFn()._process_batch_defined is False,
    "_read_state": lambda: _is_set_by(coders.StateBackedIterableCoder, "_read_state"),
    "_reader_cache": lambda: _is_set_by(
        unbounded_source._ReadFromUnboundedSourceDoFn, "_reader_cache"
    ),
    "_sample_resolution_sec": lambda: _is_set_by(
        test_stream._TimingEventGenerator, "_sample_resolution_sec"
    ),
    "_state_stream": lambda: _is_set_by(portable_runner.PipelineResult, "_state_stream"),
    "_tagged_with_step": lambda: (
        # The module may be compiled.
        "getattr(exn, '_tagged_with_step', False)"
        in Path(inspect.getfile(common)).with_name("common.py").read_text()
    ),
    "_visible_options": lambda: (
        vars(HadoopFileSystemOptions([])._visible_options).keys()
        >= {
            "hdfs_host",
            "hdfs_port",
        }
    ),
}
"""By name: what is true of it, as far as this project relies on it."""


def test_all_of_beams_have_a_proof() -> None:
    used = {name for file, names in FOUND.items() if file != PYSPARKS for name in names}
    assert used == set(PROOFS)


@pytest.mark.parametrize("name", sorted(PROOFS))
def test_a_private_name_is_what_it_is_taken_for(name: str) -> None:
    assert PROOFS[name]()


@pytest.mark.parametrize("name", ["_pickled_types", "_unpickled_types"])
def test_what_beam_keeps_of_classes_is_a_dict(name: str) -> None:
    """Whether its module is compiled or not."""
    assert type(coded_types._variable(name)) is dict


def test_options_are_read_from_class_attributes() -> None:
    """``job_options`` puts values of threads in their place."""
    text = inspect.getsource(RuntimeValueProvider)
    assert "RuntimeValueProvider.runtime_options = pipeline_options" in text
    assert "RuntimeValueProvider.runtime_options.get(option_name)" in text
    assert "RuntimeValueProvider.experiments" in text
    assert "cls._pipeline_options = pipeline_options" in inspect.getsource(FileSystems.set_options)


def test_both_picklers_read_what_either_has_written() -> None:
    """So that one library for all threads of a process will do."""
    dill = pytest.importorskip("apache_beam.internal.dill_pickler", reason="dill is an extra")
    for written in (cloudpickle_pickler.dumps(_is_set_by), dill.dumps(_is_set_by)):
        assert cloudpickle_pickler.loads(written)
        assert dill.loads(written)
    assert pickler.desired_pickle_lib in (cloudpickle_pickler, dill)
