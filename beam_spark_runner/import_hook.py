"""Make ``--runner=SparkPortableRunner`` known to Beam, in programs that do not import this package.

Beam has no plug-in hook: its runner names are a tuple in
``apache_beam.options.pipeline_options``. A ``.pth`` file that both kinds of
install put into site-packages imports a copy of this file whenever Python
starts; the copy waits for Beam's module and then adds one name to the tuple.

It runs in every Python process of the user's environment. Therefore it uses only the
standard library, imports nothing before Beam is imported, and raises no error.
"""

import sys

TYPE_CHECKING = False  # type checkers know this name; importing ``typing`` would take time
if TYPE_CHECKING:
    from typing import Any

_AWAITED = "apache_beam.options.pipeline_options"
RUNNER = "beam_spark_runner.runner.SparkPortableRunner"


class _Finder:
    """A meta path finder that wraps the loader which another finder returns for Beam's module."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != _AWAITED:
            return None
        uninstall()
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                _follow_up(spec.loader)
                return spec
        return None


def install() -> None:
    """Register the runner now if Beam's options are loaded, else once they are. Idempotent."""
    module = sys.modules.get(_AWAITED)
    if module is not None:
        _register(module)
    # Compared by name: the installed copy of this file and the package's own are two modules.
    elif not any(_is_ours(finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)


def uninstall() -> None:
    """Remove the finder from ``sys.meta_path``."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_ours(finder)]


def _is_ours(finder: object) -> bool:
    names = (__name__, "beam_spark_runner.import_hook", "_beam_spark_runner_import_hook")
    return (
        getattr(finder, "__name__", "") == _Finder.__name__
        and getattr(finder, "__module__", "") in names
    )


def _follow_up(loader: "Any") -> None:
    """Have ``loader`` call ``_register`` once, after it has executed its module.

    An attribute of this loader object shadows its method until then. A wrapping loader
    would remain visible as the module's ``__loader__``.
    """
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: "Any") -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        if getattr(module, "__name__", "") == _AWAITED:
            _register(module)

    try:
        loader.exec_module = exec_module
    except (AttributeError, TypeError):
        return  # an exotic loader; the dotted runner name still works


def _register(module: "Any") -> None:
    """Add the runner's name to Beam's known runners, then declare its options.

    Beam builds its map of runners from this tuple. If it has done so already (``install``
    was called late), the name is added to the map, too.
    """
    try:
        standard = module.StandardOptions
        short = RUNNER.rpartition(".")[2]
        if RUNNER not in standard.ALL_KNOWN_RUNNERS:
            standard.ALL_KNOWN_RUNNERS = (*standard.ALL_KNOWN_RUNNERS, RUNNER)
        if short not in standard.KNOWN_RUNNER_NAMES:
            standard.KNOWN_RUNNER_NAMES = [*standard.KNOWN_RUNNER_NAMES, short]
        runners = sys.modules.get("apache_beam.runners.runner")
        known = getattr(runners, "_RUNNER_MAP", None)
        if known is not None:
            known.setdefault(short.lower(), RUNNER)
    except Exception:
        return  # an unknown version of Beam: this must not disturb programs that use it
    try:
        # Beam collects options from the subclasses of PipelineOptions that exist when it
        # parses, and warns of flags that none of them declares.
        __import__("beam_spark_runner.options")
    except Exception:
        return  # a program that uses the runner imports the module again and gets the error
