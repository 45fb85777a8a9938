"""Judge embeddings: exact retrieval metrics at the speed of one matrix product, and a page that shows what they mean.

report = evaluate.retrieval(embeddings, labels)     # report.recall[1], report.map_at_r, print(report)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
