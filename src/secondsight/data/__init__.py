"""Images from disk: datasets and their splits, decoding, transforms, samplers and the cache of frozen features.

    images = data.open("photos")                          # or "cub200:PATH", "list.csv" …
    split = data.splits("cub200:PATH", "validation")      # split.train, split.eval

``__init__.pyi`` lists the public names; each is loaded when first asked for, because some of their modules need torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
