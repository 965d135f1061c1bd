"""Functions, classes and imports of a script that is run as ``__main__``."""

from pathlib import Path

import pytest

from tests.cli.programs import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
    import math
    from collections import Counter

    SCALE = 10

    def scaled(x):
        return math.floor(x * SCALE)

    class Word(beam.DoFn):
        def process(self, x):
            yield f"{scaled(x)} {Counter('aab')['a']} {'pyspark.daemon' in sys.modules}"

    def main():
        with beam.Pipeline(argv=OPTIONS) as p:
            words = p | beam.Create([1.55]) | beam.ParDo(Word())
            words | beam.io.WriteToText("out", shard_name_template="")

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("flags", "is_spark_worker"),
    [
        pytest.param(["--pickle_library=dill"], False, id="dill"),
        pytest.param(["--pickle_library=cloudpickle"], True, id="cloudpickle"),
        pytest.param(
            ["--environment_type=PROCESS", "--environment_config={}"],
            False,
            id="cloudpickle in a process",
        ),
    ],
)
def test_main_session(tmp_path: Path, flags: list[str], is_spark_worker: bool) -> None:
    # Beam makes a folder for downloads, and leaves it for later ones.
    cache = f"--requirements_cache={tmp_path / 'cache'}"
    always = ("--spark_master_url=local[1]", "--save_main_session", cache)
    ended = run(tmp_path, SCRIPT, *always, *flags)
    assert ended.code == 0, ended.err
    out = (tmp_path / "out").read_text().split()
    assert out[:2] == ["15", "2"]
    assert (out[2] == "True") is is_spark_worker
