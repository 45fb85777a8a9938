"""``why.html``: one file, no outside host. Move over a place to see what it matches."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from secondsight import files
from secondsight.templates import environment

if TYPE_CHECKING:
    from secondsight.explain.explanation import Explanation
    from secondsight.explain.places import Places

HEIGHT = 640
"""Pixels of the pictures in the page, at most."""


def save(why: Explanation, path: Path, *, kind: str = "share") -> None:
    """Write the page."""
    files.write_text(path, page(why, kind=kind))


def page(why: Explanation, *, kind: str = "share") -> str:
    """The whole page, with pictures, numbers, style and script in it."""
    kinds = list(why.kinds)
    plus, minus = why.sides
    data = {
        "images": [_image(why, "a", why.places_a, kinds), _image(why, "b", why.places_b, kinds)],
        "links": None if why.links is None else packed(why.links),
        "strongest": why.strongest(10, spread=True),
        "codewords": None if why.codewords is None else np.round(why.codewords, 6).tolist(),
        "kinds": kinds,
        "kind": kind,
    }
    return (
        environment("secondsight.explain")
        .get_template("page.html")
        .render(why=why, words=why.words(), data=data, kinds=kinds, plus=plus, minus=minus)
    )


def packed(links: np.ndarray) -> dict[str, Any]:
    """A matrix as 16-bit integers in base64, and the number that one step stands for."""
    step = float(np.abs(links).max(initial=0.0)) / 32767 or 1.0
    return {
        "step": step,
        "shape": list(links.shape),
        "data": base64.b64encode(np.round(links / step).astype("<i2").tobytes()).decode(),
    }


def jpeg(pixels: np.ndarray, *, height: int = HEIGHT) -> str:
    """A picture as a ``data:`` address."""
    image = Image.fromarray(pixels)
    image.thumbnail((2 * height, height), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=86)
    return address(out.getvalue())


def address(content: bytes) -> str:
    """A JPEG as a ``data:`` address."""
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()


def _image(why: Explanation, which: str, here: Places, kinds: list[str]) -> dict[str, Any]:
    pixels = here.pixels if here.pixels is not None else np.full((*here.frame.size, 3), 235, np.uint8)
    return {
        "name": here.name,
        "picture": jpeg(pixels),
        "grid": list(here.grid),
        "seen": list(here.frame.seen),
        "within": None if here.mask is None else here.mask.tolist(),
        "maps": {kind: np.round(why.map(which, kind), 7).ravel().tolist() for kind in kinds},
        "codeword": None if here.codeword is None else here.codeword.tolist(),
    }
