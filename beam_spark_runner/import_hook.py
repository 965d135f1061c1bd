"""Make ``--runner=SparkPortableRunner`` known to Beam, in programs that do not import this package.

Beam has no plug-in hook: its runner names are a tuple in
``apache_beam.options.pipeline_options``. A ``.pth`` file that both kinds of
install put into site-packages imports a copy of this file whenever Python
starts; the copy waits for Beam's module and then adds one name to the tuple.

This runs in every Python process of the user's environment, so: standard
library only, nothing imported until Beam is, no error ever leaves it.
"""

import sys

TYPE_CHECKING = False  # as ``typing`` has it, which is not loaded at start
if TYPE_CHECKING:
    from typing import Any

_AWAITED = "apache_beam.options.pipeline_options"
RUNNER = "beam_spark_runner.runner.SparkPortableRunner"


class _Finder:
    """Finds no module itself. Lets Beam's be found by the others, and follows it up."""

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
    """Register now if Beam's options are loaded, else as soon as they are. May be called again."""
    module = sys.modules.get(_AWAITED)
    if module is not None:
        _register(module)
    # By name: the installed copy of this file and the package's own are two modules.
    elif not any(_is_ours(finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)


def uninstall() -> None:
    """Stop waiting."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_ours(finder)]


def _is_ours(finder: object) -> bool:
    names = (__name__, "beam_spark_runner.import_hook", "_beam_spark_runner_import_hook")
    return (
        getattr(finder, "__name__", "") == _Finder.__name__
        and getattr(finder, "__module__", "") in names
    )


def _follow_up(loader: "Any") -> None:
    """Have ``loader`` call ``_register`` after it executed its module, once.

    The method of this one loader object is shadowed and restored; a loader of
    our own around it would show in the module's ``__loader__`` for good.
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
    """Add the runner's name, then its options.

    Beam builds its map of runners from this tuple; where that has happened
    already (``install`` came late), the map gets the name too.
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
        return  # another Beam than we know: its own users must not notice us
    try:
        # Beam collects options from the subclasses that exist when it parses,
        # and warns about what none of them declares.
        __import__("beam_spark_runner.options")
    except Exception:
        return  # whoever uses the runner imports the module again and sees the error
