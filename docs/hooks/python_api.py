"""The page of every public name, for mkdocstrings to fill from docstrings."""

from __future__ import annotations

import importlib
import inspect

ROOMS = {
    "secondsight": "",
    "secondsight.model": "The model.",
    "secondsight.pooling": "A set of local features becomes one vector.",
    "secondsight.backbones": "An image becomes local features.",
    "secondsight.data": "Images from disk.",
    "secondsight.embed": "The one road from images to vectors.",
    "secondsight.losses": "What an embedding is taught with.",
    "secondsight.train": "From a recipe to a model.",
    "secondsight.evaluate": "How good an embedding is.",
    "secondsight.index": "A collection that is searched and kept in step with the disk.",
    "secondsight.explain": "Why two images match.",
    "secondsight.inference": "Without torch, and by the fastest runtime.",
}


def page() -> str:
    lines = ["# Python", "", "Every public name, from its docstring. Examples in docstrings are run by the tests.", ""]
    seen: set[int] = set()
    for room, words in ROOMS.items():
        module = importlib.import_module(room)
        lines += [f"## {room}", "", words, ""]
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if id(thing) in seen or not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            seen.add(id(thing))
            lines += [f"::: {thing.__module__}.{thing.__qualname__}", ""]
    return "\n".join(lines)
