"""The one road from images to vectors. Whoever needs vectors comes this way: training's validation, evaluation,
compression, fitting, the index and the page.

    found = embed(model, images)                     # Embeddings: vectors, labels, indices, failures
    for block in blocks(model, images): …            # as they come, so that they can be written while the network works
    encode(model, ["a.jpg", picture])                # queries: files, bytes, pictures, pixels
    features(model, images, count=512)               # local features of a sample, to fit from
"""

from secondsight.embed.inputs import Inputs, activations, pictures
from secondsight.embed.queries import encode
from secondsight.embed.stream import Block, Embeddings, blocks, embed, features, join, stream

__all__ = [
    "Block",
    "Embeddings",
    "Inputs",
    "activations",
    "blocks",
    "embed",
    "encode",
    "features",
    "join",
    "pictures",
    "stream",
]
