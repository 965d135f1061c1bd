"""A job server of the chart, whose executors are pods: jobs of Python and Go, and a stream."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import apache_beam
import pytest

from integration.arriving_words import ArrivingWords
from integration.kubernetes.go_programs import CACHE, ROOT
from integration.kubernetes.kubectl import wait_for
from integration.kubernetes.pod_node import Node
from integration.kubernetes.releases import Release
from integration.kubernetes.restrictions_of_pods import check_inside, check_pods
from integration.kubernetes.service_clients import (
    ENDPOINT,
    ENDS_WITHIN_S,
    count_words,
    counts,
    ended,
    text_file,
    words,
)
from integration.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

VALUES = {"insecure": True, "advertisedHost": "localhost"}


@pytest.fixture(scope="module")
def installed(release: Callable[[str], Release], go_harnesses: str) -> Iterator[Release]:
    """A job server that is ready."""
    made = release("jobs")
    made.install({"jobServer": VALUES, "goHarnesses": {"enabled": True, "image": go_harnesses}})
    wait_for(made.kubectl, "job-server")
    yield made
    made.remove()


def test_word_count_of_python(installed: Release) -> None:
    count_words(installed)
    check_pods(installed.kubectl)
    for component, count in (("job-server", 1), ("executor", 2)):
        for pod in wait_for(installed.kubectl, component, count):
            check_inside(installed.kubectl, pod)


def test_word_count_of_go(installed: Release) -> None:
    folder = CACHE / "go"
    version = apache_beam.__version__
    package = f"github.com/apache/beam/sdks/v2/go/examples/wordcount@v{version}"
    variables = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
    subprocess.run(["nice", "go", "install", package], env=variables, check=True)
    program = str(folder / "wordcount")
    output = installed.folder("go") / "counts"
    ended(
        installed,
        *(program, "--runner=universal", f"--endpoint={ENDPOINT}"),
        *("--environment_type=EXTERNAL", "--environment_config=localhost:50000"),
        *(f"--worker_binary={program}", f"--input={text_file(installed)}"),
        f"--output={output}",
    )
    assert counts(output) == words()


def test_a_stream_continues_when_pods_are_deleted(installed: Release) -> None:
    """Its client ends at once: the job is the server's."""
    stream = ArrivingWords(installed.folder("words"), installed.folder("stream"))
    stream.add()
    program = ROOT / "examples" / "streaming" / "word_counts.py"
    options = ("--runner=SparkPortableRunner", f"--job_endpoint={ENDPOINT}", "--streaming")
    with (
        installed.forwarded(),
        subprocess.Popen([sys.executable, str(program), *stream.flags, *options]) as client,
    ):
        wait_until(stream.are_counted, "the first words", ENDS_WITHIN_S, 0.5)
        client.kill()
    for component in ("executor", "job-server"):
        pods = installed.kubectl.pods(component)
        deleted = next(iter(pods))
        installed.kubectl.run("delete", "pod", pods[deleted]["metadata"]["name"])
        stream.add()
        wait_until(stream.are_counted, f"words after a lost {component}", ENDS_WITHIN_S, 0.5)
        assert deleted not in installed.kubectl.pods(component)
    earlier = set(installed.kubectl.pods("job-server"))
    installed.upgrade({"executors": {"instances": 1}})
    stream.add()
    wait_until(stream.are_counted, "words after an upgrade", ENDS_WITHIN_S, 0.5)
    wait_for(installed.kubectl, "executor", 1)
    assert not earlier & set(installed.kubectl.pods("job-server"))
    stream.check()
    check_pods(installed.kubectl)


def test_drivers_have_the_rights_that_they_use(installed: Release, node: Node) -> None:
    """After all of the above, a job server that has ended among it."""
    (role,) = installed.kubectl.objects("roles")
    granted = {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    # It deletes a single pod only when that has failed by itself.
    assert node.plane.rights_used("jobs-driver", "jobs") == granted - {("delete", "pods")}
