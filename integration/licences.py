"""Lists the licences of the packages of an environment, and refuses those that bind users.

Usage: ``python -m integration.licences PYTHON EXTRAS``, from an environment with pip-licenses.
PYTHON is the interpreter of one with this package and the extras, which are separated by commas.
It writes ``docs/licences.md``.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "licences.md"
OURS = "beam-spark-runner"
# As packages write them: identifiers of SPDX, or the names of PyPI's classifiers.
PERMITTED = frozenset(
    (
        "0BSD",
        "3-Clause BSD License",
        "Apache Software License",
        "Apache-2.0",
        "BSD License",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT License",
        "MIT-0",
        "MIT-CMU",
        # For its own files only: certifi, which has no code but a list of certificates.
        "Mozilla Public License 2.0 (MPL 2.0)",
        "OLDAP-2.8",
        "PSF-2.0",
        "Python Software Foundation License",
        "Zlib",
    )
)
_HEAD = """# Licences of the dependencies

What `pip install 'beam-spark-runner[{extras}]'` installs on Linux, and under which licences, as
the packages state it. `make licences` writes this page. `make package-test` fails if a licence is
unknown, or is one of the GPL's kind. The extra `kerberos`, which compiles, adds `gssapi` and
`requests-gssapi` (both ISC). `make sbom` writes a bill of materials with all versions, in
CycloneDX's format.

| package | licence |
| --- | --- |
"""


def licences_of(python: Path, tools: Path) -> dict[str, str]:
    """Return the licence of each package of an environment, by its name; ours is left out.

    Args:
        python: The interpreter of the environment.
        tools: The folder with the program ``pip-licenses``.
    """
    command = [str(tools / "pip-licenses"), f"--python={python}", "--from=mixed", "--format=json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    found = {each["Name"]: each["License"] for each in listed}
    return {name: found[name] for name in sorted(found, key=str.lower) if name != OURS}


def is_permitted(licence: str) -> bool:
    """Whether the terms of a licence are known, and do not bind the code of users.

    Args:
        licence: An expression of SPDX, or names of classifiers, separated by semicolons.
    """
    return any(
        all(part in PERMITTED or part.strip(" ()") in PERMITTED for part in parts)
        for parts in (re.split(r" AND |; ", choice) for choice in licence.split(" OR "))
    )


def refused(licences: Mapping[str, str]) -> list[str]:
    """Return the packages, with their licences, that this package must not depend on."""
    return [f"{name}: {each}" for name, each in licences.items() if not is_permitted(each)]


def page(licences: Mapping[str, str], extras: str) -> str:
    """Return the page that lists the licences.

    Args:
        licences: See ``licences_of``.
        extras: The extras that are installed, separated by commas.
    """
    rows = (f"| {name} | {licence} |\n" for name, licence in licences.items())
    return _HEAD.format(extras=extras) + "".join(rows)


def main(python: Path, extras: str) -> None:
    """Write the page; end with an error if a licence is refused."""
    licences = licences_of(python, Path(sys.executable).parent)
    if wrong := refused(licences):
        sys.exit("not permitted:\n" + "\n".join(wrong))
    PAGE.write_text(page(licences, extras))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
