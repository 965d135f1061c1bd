"""Runs the steps of Java's SDK as processes, in place of the containers that a pipeline names."""

import logging
import shlex
import shutil
import zipfile

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.artifacts import artifacts_of
from beam_spark_runner.portable.environment_facts import changed_environments, is_of_java, sdk_of
from beam_spark_runner.storage.urls import is_url

STAGED = "staged"
"""The value of --java_class_path for staged files alone."""
_MAIN = "org.apache.beam.fn.harness.FnHarness"
_NEEDED = {
    f"{_MAIN.replace('.', '/')}.class": "org.apache.beam:beam-sdks-java-harness",
    "org/github/jamm/MemoryMeter.class": "com.github.jbellis:jamm",
}
"""The classes that a harness needs and that may be missing, and the Maven artifacts that have them.
The second one is in Beam's containers only, since the harness does not depend on it in Maven."""
_CLASS_PATH = "BEAM_SPARK_JAVA_CLASS_PATH"
# The harness finds its endpoints in the same variables as Python's, but for its id. ``java`` lists
# the jars of a folder itself.
_SCRIPT = (
    f'class_path="${{{_CLASS_PATH}:+${_CLASS_PATH}:}}'
    '${SEMI_PERSISTENT_DIRECTORY:+$SEMI_PERSISTENT_DIRECTORY/staged/*}"; '
    'export HARNESS_ID="$WORKER_ID"; '
    f'exec "${{JAVA_HOME:+$JAVA_HOME/bin/}}java" -cp "$class_path" {_MAIN}'
)
_COMMAND = shlex.join(["sh", "-c", _SCRIPT])
_LACKS_PROGRAM = "(there is no %s on this machine; --java_class_path decides)"
_STAY = "steps in Java run in containers, since the jars that are staged for them lack something"
_CHANGE = "steps in Java run as processes, with the jars that are staged for them"
_LOGGER = logging.getLogger(__name__)


def run_java_in_processes(graph: Graph, class_path: str | None, docker: str) -> Graph:
    """Replace the containers of Java's SDK by processes of the executors' Java.

    The class path of such a process has the files that the environment stages: an expansion service
    stages its own jars, and these include Java's SDK harness.

    Args:
        graph: The graph before all passes; the files of its environments are on this machine.
        class_path: --java_class_path: what precedes these files, as ``java -cp`` takes it, or
            ``STAGED``. None: containers stay, unless this machine has no program that starts them,
            and the files are known to have all that a process needs.
        docker: The program that starts containers.

    Returns:
        A graph that is the same but for the URN and the payload of such environments.

    Raises:
        OptionsError: The files of such an environment lack Java's SDK harness or what it needs, and
            there is no other class path.
    """
    containers = {
        id_
        for id_, environment in graph.environments.items()
        if environment.urn == urns.ENVIRONMENT_DOCKER and is_of_java(graph, id_)
    }
    if not containers or (class_path is None and shutil.which(docker) is not None):
        return graph
    before = "" if class_path in (None, STAGED) else str(class_path)

    def replace(id_: EnvironmentId, proto: beam_runner_api_pb2.Environment) -> None:
        if id_ not in containers:
            return
        if class_path is None:
            if _missing_in(proto) != frozenset():
                _LOGGER.warning("%s %s", _STAY, _LACKS_PROGRAM % docker)
                return
            _LOGGER.info("%s %s", _CHANGE, _LACKS_PROGRAM % docker)
        elif not before:
            _check_has_harness(id_, proto)
        process = beam_runner_api_pb2.ProcessPayload(command=_COMMAND, env={_CLASS_PATH: before})
        proto.urn, proto.payload = urns.ENVIRONMENT_PROCESS, process.SerializeToString()

    return changed_environments(graph, replace)


def _missing_in(proto: beam_runner_api_pb2.Environment) -> frozenset[str] | None:
    """Return which of ``_NEEDED`` staged files lack; None: some are in an object store."""
    paths = [artifact.path for artifact in artifacts_of(proto)]
    if any(is_url(path) for path in paths):
        return None
    return frozenset(_NEEDED).difference(*map(_classes_in, paths))


def _check_has_harness(id_: EnvironmentId, proto: beam_runner_api_pb2.Environment) -> None:
    missing = _missing_in(proto)
    if missing:  # if it is not known, the harness itself fails
        number = len(artifacts_of(proto))
        raise OptionsError(
            "java_class_path",
            f"the environment {id_} of the pipeline is Java's ({sdk_of(proto)}), and none of the "
            f"{number} files that are staged for it has {' or '.join(sorted(missing))}; add to "
            f"what is staged, or name jars on the executors: those of the Maven artifacts "
            f"{' and '.join(sorted(_NEEDED[each] for each in missing))}, and what they depend on",
        )


def _classes_in(path: str) -> frozenset[str]:
    """Return which of ``_NEEDED`` a file has."""
    if not zipfile.is_zipfile(path):
        return frozenset()
    with zipfile.ZipFile(path) as jar:
        return frozenset(_NEEDED).intersection(jar.namelist())
