"""The model: ``Embedder`` = backbone + reduction + pooling + normalisation, saved and loaded as one directory.

``__init__.pyi`` lists the public names; each is loaded when first asked for: what a score means (``calibration``) is
also read where there is no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
