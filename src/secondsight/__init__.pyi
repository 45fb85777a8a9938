from .model.directory import load as load
from .model.embedder import Embedder as Embedder
from .version import __version__ as __version__
