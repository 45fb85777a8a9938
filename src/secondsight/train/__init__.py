"""Training: ``train(recipe, out)`` teaches an embedder, resumes exactly, keeps the best model on held-out classes.

``__init__.pyi`` lists the public names; they are loaded when first asked for: `secondsight recipes` should not wait
for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
