"""Queries and what they found, as rows of thumbnails inside the page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape

from secondsight.evaluate.drawing import breakable
from secondsight.evaluate.examples import Example, Neighbour

Picture = Callable[[int], "bytes | None"]
"""The JPEG of an item, by its index; None where there is none."""


def rows(title: str, lede: str, examples: Sequence[Example], picture: Picture, name: Callable[[int], str]) -> str:
    """A section with one row an example, or nothing without examples."""
    if not examples:
        return ""
    body = "".join(_row(example, picture, name) for example in examples)
    return f'<h2>{escape(title)}</h2><p class="lede">{escape(lede)}</p><section class="card">{body}</section>'


def _row(example: Example, picture: Picture, name: Callable[[int], str]) -> str:
    place = "first" if example.rank == 1 else f"at place {example.rank:,}"
    query = (
        f'<figure title="{escape(name(example.index))}"><div class="frame">{_image(example.index, picture, name)}</div>'
        f"<figcaption>query<br><b>{breakable(str(example.label))}</b><br>right one {place}</figcaption></figure>"
    )
    found = "".join(_found(neighbour, picture, name) for neighbour in example.neighbours)
    return f'<div class="example">{query}<div class="found">{found}</div></div>'


def _found(neighbour: Neighbour, picture: Picture, name: Callable[[int], str]) -> str:
    kind, mark = ("right", "✓") if neighbour.right else ("wrong", "✗")
    return (
        f'<figure class="{kind}" title="{escape(name(neighbour.index))}"><div class="frame">'
        f'{_image(neighbour.index, picture, name)}<span class="mark">{mark} {neighbour.similarity:.2f}</span></div>'
        f"<figcaption>{breakable(str(neighbour.label))}</figcaption></figure>"
    )


def _image(index: int, picture: Picture, name: Callable[[int], str]) -> str:
    jpeg = picture(index)
    if jpeg is None:
        return f'<div class="blank">{escape(name(index))}</div>'
    data = base64.b64encode(jpeg).decode("ascii")
    return f'<img alt="{escape(name(index))}" src="data:image/jpeg;base64,{data}">'
