"""secondsight: compact second-order image representations.

An image becomes a set of local features, a pooling turns the set into one vector, and everything else either teaches
that vector or uses it. Reading order: ``backbones``, ``pooling``, ``model``, then ``data``, ``embed``, ``losses``,
``train``, ``evaluate``, ``index``, ``explain``, ``serve``.
"""

from secondsight.version import __version__ as __version__

# torch takes seconds to import; `secondsight --help` and `secondsight.__version__` should not wait for it. Where an
# exported model is all there is (`secondsight.inference`), not even the package that defers imports is needed.
try:
    import lazy_loader

    __getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
except ModuleNotFoundError:

    def __getattr__(name: str) -> object:
        raise AttributeError(
            f"secondsight.{name} is not here without the packages that `pip install secondsight` installs; "
            "secondsight.inference.load runs an exported model without them"
        )
