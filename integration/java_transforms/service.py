"""An expansion service in Java: what it needs, its jar, and its process."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.expansion_service import free_port, listening

JARS = Path(sys.prefix) / "java_transforms"
"""The jars that ``pom.xml`` names."""
MAIN = "org.apache.beam.sdk.expansion.service.ExpansionService"
_SOURCE = Path(__file__).with_name("SqlTransforms.java")
_REGISTRARS = "META-INF/services/org.apache.beam.sdk.expansion.ExternalTransformRegistrar"
_BUILDS_WITHIN_S = 120.0


def missing_tools() -> list[str]:
    """Return what the tests need of this machine and do not find, in words."""
    tools = [f"{tool} (a JDK)" for tool in ("java", "javac", "jar") if shutil.which(tool) is None]
    if not (JARS / ".ready").exists():
        tools.append(f"the jars of {JARS}: make conformance-xlang-java fetches them")
    return tools


def build_service(folder: Path) -> Path:
    """Build the jar of a service: its main class, and the transforms of this folder.

    The other jars are in ``JARS``.
    """
    classes = folder / "classes"
    compile_ = ["javac", "-cp", f"{JARS}/*", "-d", str(classes), str(_SOURCE)]
    subprocess.run(compile_, check=True, timeout=_BUILDS_WITHIN_S)
    registrars = classes / _REGISTRARS
    registrars.parent.mkdir(parents=True)
    registrars.write_text(f"{_SOURCE.stem}\n")
    jar = folder / "service.jar"
    subprocess.run(
        ["jar", "cfe", str(jar), MAIN, "-C", str(classes), "."],
        check=True,
        timeout=_BUILDS_WITHIN_S,
    )
    return jar


@contextlib.contextmanager
def java_expansion_service(jar: Path, *flags: str) -> Iterator[str]:
    """Run the service from a class path until the block ends; yield its address."""
    port = free_port()
    command = ["java", "-Xmx512m", "-cp", f"{jar}:{JARS}/*", MAIN, str(port), *flags]
    with listening(command, port):
        yield f"127.0.0.1:{port}"
