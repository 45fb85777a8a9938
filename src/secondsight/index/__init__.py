"""A collection of pictures that can be searched, added to, and kept in step with the disk.

    from secondsight import index
    birds = index.create("birds.index", model, "photos/")     # or index.open("birds.index")
    hits = birds.search("query.jpg", k=10, where={"label": "heron"})

On disk: ``catalogue`` (SQLite: items, and which vectors count), ``segments`` (the vectors), a copy of the model, and
engines and thumbnails that can be thrown away. ``__init__.pyi`` lists the public names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
