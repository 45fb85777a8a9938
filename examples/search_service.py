"""A search service of your own: a collection behind two HTTP addresses.

    pip install 'secondsight[lite,serve]'
    python examples/search_service.py ./photos          # http://127.0.0.1:8080/docs

``secondsight serve`` has a page, limits, tokens and a process of its own for decoding; take this where you want the
search inside a service that you have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fastapi import FastAPI, UploadFile

from secondsight import explain, index
from secondsight.data import open as open_images
from secondsight.fit import fit_to
from secondsight.index import Index


def collection(folder: str) -> Index:
    """The collection of a folder: made once, without labels, and kept in step with the folder later."""
    path = Path(folder.rstrip("/")).with_suffix(".index")
    if path.exists():
        photos = index.open(path)
        photos.update()
        return photos
    return index.create(path, fit_to(open_images(folder)), folder)


def service(photos: Index) -> FastAPI:
    app = FastAPI(title="photos")

    @app.post("/search")
    def search(photo: UploadFile, k: int = 5) -> list[dict]:  # not async: the network must not block the others
        hits = photos.search(photo.file.read(), k=k)
        return hits.row(0)  # id, path, label, score, probability, match

    @app.post("/why/{id}")
    def why(id: int, photo: UploadFile) -> dict:
        """Why an item matches the photo: the similarity, and the strongest links between places."""
        item = photos.item(id)
        found = explain.pair(photos.model(), photo.file.read(), str(item.path))
        return {"similarity": found.similarity, "links": found.strongest(10), "words": found.words()}

    return app


if __name__ == "__main__":
    import uvicorn

    if len(sys.argv) != 2:
        raise SystemExit("give a folder of pictures: python examples/search_service.py ./photos")
    uvicorn.run(service(collection(sys.argv[1])), host="127.0.0.1", port=8080)
