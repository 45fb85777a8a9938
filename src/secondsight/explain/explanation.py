"""Why two images match: ``pair`` splits their similarity into links between places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secondsight import files
from secondsight.embed.queries import Picture
from secondsight.errors import ConfigError, UnknownName, require_known
from secondsight.explain import algebra, distinct, removal
from secondsight.explain.places import Places, places
from secondsight.model import Embedder

KINDS = ("share", "effect", "left out", "distinct")
"""share: what the similarity is made of · effect: what removing a place would take away, to first order · left out:
what removing it does take away · distinct: the part of the share that other pictures would not get.
"""

MUCH = 5.0
"""Cancellation above which words say so: five times as much evidence was weighed as is left."""

LITTLE = 0.05
"""Part of the similarity below which what is distinct sets nothing apart."""


@dataclass(eq=False)
class Explanation:
    """The similarity of two images, place by place. Arrays are numpy; maps have the shape of the image's grid.

    ``links.sum() == similarity`` to rounding; ``a`` and ``b`` are its row and column sums. Negative numbers speak
    against the match. An approximation (``exact`` False) has maps, no links, and says by how much they miss the sum.
    """

    similarity: float
    links: np.ndarray | None  # (places of a, places of b)
    a: np.ndarray  # (h, w) shares of a's places
    b: np.ndarray
    effect_a: np.ndarray  # (h, w): what the similarity would lose without a place, to first order
    effect_b: np.ndarray
    places_a: Places
    places_b: Places
    method: str = "exact sum over pairs of places"
    error: float = 0.0  # similarity − the sum of the map, for an approximation
    others: np.ndarray | None = None  # (n, D) vectors of other pictures

    @property
    def exact(self) -> bool:
        return self.links is not None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The maps that there are: what is distinct is known only beside other pictures, of an exact sum."""
        return KINDS if self.exact and self.others is not None else KINDS[:-1]

    @property
    def misses(self) -> bool:
        """Whether the approximated shares miss more than a tenth of what they shall explain: then they explain little.
        Poolings that forget the length of their input (a normalisation inside) are of that kind.
        """
        return abs(self.error) > 0.1 * max(abs(self.similarity), 0.05)

    @property
    def sides(self) -> tuple[float, float]:
        """What speaks for the match and what against it, of links; of a's map where there are none."""
        values = self.a if self.links is None else self.links
        return float(values[values > 0].sum()), abs(float(values[values < 0].sum()))

    @cached_property
    def cancellation(self) -> float:
        """Σ|P| / |ΣP|, of links; of a's map where there are none."""
        return algebra.cancellation(torch.from_numpy(self.a if self.links is None else self.links).double())

    @cached_property
    def left_out_a(self) -> np.ndarray:
        """(h, w): what the similarity does lose without each place of a, exactly."""
        return removal.left_out(self.places_a, self.places_b.unit).view(self.places_a.grid).numpy()

    @cached_property
    def left_out_b(self) -> np.ndarray:
        return removal.left_out(self.places_b, self.places_a.unit).view(self.places_b.grid).numpy()

    @cached_property
    def distinct_a(self) -> np.ndarray:
        """(h, w): the part of each share of a that other pictures would not get from the place; see ``distinct``."""
        return self._distinct(self.places_a, self.places_b)

    @cached_property
    def distinct_b(self) -> np.ndarray:
        return self._distinct(self.places_b, self.places_a)

    def _distinct(self, here: Places, there: Places) -> np.ndarray:
        if self.others is None or not self.exact:
            raise ConfigError(
                "what is distinct needs an exact sum, and other pictures to compare with: give others=, vectors of the "
                "same model, or search an index with --why"
            )
        return distinct.distinct(here.scaled, there.unit, self.others).view(here.grid).numpy()

    @cached_property
    def codeword_links(self) -> np.ndarray | None:
        """(N, N): what codeword n of a and codeword m of b share; sums to the similarity. None without a codebook."""
        h_a, h_b = self.places_a.assignment, self.places_b.assignment
        if self.links is None or h_a is None or h_b is None:
            return None
        return algebra.grouped(torch.from_numpy(self.links).double(), h_a, h_b).numpy()

    @cached_property
    def codewords(self) -> np.ndarray | None:
        """(N,): the share of each codeword in the similarity, half by a's places and half by b's."""
        if self.codeword_links is None:
            return None
        return (self.codeword_links.sum(0) + self.codeword_links.sum(1)) / 2

    def map(self, image: str = "a", kind: str = "share", *, on: str = "grid") -> np.ndarray:
        """One of the maps.

        Args:
            image: ``"a"`` or ``"b"``.
            kind: One of ``KINDS``.
            on: ``"grid"`` (h, w), ``"shown"`` (S, S) as the network saw it, or ``"original"`` (H, W), the whole
                original, with 0 where the network did not look.
        """
        require_known("image of a pair", image, ("a", "b"))
        require_known("kind of map", kind, KINDS)
        prefix = "" if kind == "share" else kind.replace(" ", "_") + "_"
        values = getattr(self, prefix + image)
        if on == "grid":
            return values
        here = self.places_a if image == "a" else self.places_b
        if on == "shown":
            return here.frame.on_shown(values, here.model.size)
        if on == "original":
            return here.frame.on_original(values)
        raise UnknownName("surface of a map", on, ("grid", "shown", "original"))

    def strongest(self, count: int = 12, *, spread: bool = False) -> list[tuple[int, int, float]]:
        """The links (place of a, place of b, value) of largest size, never of one sign alone: a fifth of them speak
        for the match and a fifth against it, where there are so many.

        Args:
            count: How many, at most.
            spread: Without those whose both ends lie beside the ends of a stronger one: they say the same again.
        """
        if self.links is None:
            return []
        flat, few = self.links.ravel(), count // 5
        enough = 100 * count if spread else count  # the strongest have many neighbours
        signs = [_largest(flat, np.flatnonzero(sign), enough) for sign in (flat >= 0, flat < 0)]
        if spread:
            signs = [self._spread(some, count) for some in signs]
        rest = np.concatenate([some[few:] for some in signs])
        rest = rest[np.argsort(-np.abs(flat[rest]), kind="stable")]
        base = np.concatenate([some[:few] for some in signs])
        chosen = np.concatenate([base, rest[: count - len(base)]])
        chosen = chosen[np.argsort(-np.abs(flat[chosen]), kind="stable")]
        rows, columns = np.unravel_index(chosen, self.links.shape)
        return [(int(i), int(j), float(self.links[i, j])) for i, j in zip(rows, columns, strict=True)]

    def _spread(self, order: np.ndarray, count: int) -> np.ndarray:
        """Of links in this order, those that no earlier one has as a neighbour at both ends."""
        assert self.links is not None
        ends = np.unravel_index(order, self.links.shape)
        grids = self.places_a.grid, self.places_b.grid
        points = np.concatenate([np.divmod(end, grid[1]) for end, grid in zip(ends, grids, strict=True)]).T  # (n, 4)
        kept: list[int] = []
        for number, point in enumerate(points):
            if len(kept) < count and not (np.abs(points[kept] - point).max(1, initial=0) < 2).any():
                kept.append(number)
        return order[kept]

    def words(self) -> list[str]:
        """What the numbers say, in sentences."""
        positive, negative = self.sides
        equals = "=" if self.exact else "≈"
        said = [f"Similarity {self.similarity:.3f} {equals} {positive:.3f} for the match − {negative:.3f} against it."]
        if self.misses:
            said = [
                f"Similarity {self.similarity:.3f}; the map has {positive:.3f} for the match, {negative:.3f} against."
            ]
        if not self.exact:
            said.append(
                f"An approximation ({self.method}): the pooling is not a sum over places. "
                f"The map misses the similarity by {abs(self.error):.3f}."
            )
            if self.misses:
                said.append("That is too much to trust it: what removing each place does is exact for every pooling.")
        if "distinct" in self.kinds:
            apart = (float(self.distinct_a.sum()) + float(self.distinct_b.sum())) / 2
            said.append(
                f"{apart:.3f} of the similarity sets this match apart: nearly all other pictures would not get it."
                if apart >= LITTLE * abs(self.similarity)
                else "Nothing much sets this match apart: place by place, some other pictures get about as much."
            )
        if self.cancellation > MUCH:
            said.append(
                f"Most of the evidence cancels: {self.cancellation:.1f} times as much was weighed as is left. "
                "Read single places with care; what removing them does is the safer picture."
            )
        return said

    def to_dict(self, most: int = 50) -> dict[str, Any]:
        """For JSON: the sums, maps, the ``most`` strongest links, boxes of places on the originals."""

        def image(which: str, here: Places) -> dict[str, Any]:
            return {
                "name": here.name,
                "grid": list(here.grid),
                "seen": list(here.frame.seen),
                **{kind: _rounded(self.map(which, kind)) for kind in self.kinds if kind != "left out"},
                "codeword": None if here.codeword is None else here.codeword.tolist(),
            }

        return {
            "similarity": round(self.similarity, 6),
            "exact": self.exact,
            "method": self.method,
            "error": round(self.error, 6),
            "sides": [round(side, 6) for side in self.sides],
            "cancellation": round(self.cancellation, 3),
            "words": self.words(),
            "a": image("a", self.places_a),
            "b": image("b", self.places_b),
            "links": [[i, j, round(value, 6)] for i, j, value in self.strongest(most)],
            "codewords": None if self.codewords is None else _rounded(self.codewords),
        }

    def save(self, path: str | Path, *, kind: str | None = None) -> None:
        """Draw it: ``why.png``, or ``why.html``, one file to move the mouse over.

        Args:
            path: Ends in .png or .html.
            kind: Which of ``KINDS`` is drawn (a picture) or shown first (a page); the default was chosen by erasing.
        """
        from secondsight.explain import drawing, page

        target = check_target(path, kind)
        write = drawing.save if target.suffix.lower() == ".png" else page.save
        write(self, target, kind=kind or ("left out" if self.misses else DEFAULT_KIND))


DEFAULT_KIND = "share"
"""Erasing places in this order, and bringing them back, changes the similarity fastest (benchmarks/explain.py)."""


def check_target(path: str | Path, kind: str | None = None) -> Path:
    """Where an explanation can be saved, and as what; known before the network runs."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".png", ".html"):
        raise ConfigError(f"{path}: an explanation is a picture or a page; name it .png or .html")
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind of map", kind, KINDS)
    return files.check_writable(path, directory=False)


def pair(
    model: Embedder,
    a: Picture | Places,
    b: Picture | Places,
    *,
    others: np.ndarray | None = None,
    device: str | torch.device = "cpu",
) -> Explanation:
    """Why two images match.

    Args:
        model: The embedder. If its pooling is additive the explanation is exact, else approximated by integrated
            gradients (needs the extra ``explain``).
        a, b: Pictures, or what ``places`` made of them.
        others: (n, D) vectors of other pictures by the same model; beside them it can be said what is distinct.
        device: Where the network runs.

    >>> from secondsight import Embedder
    >>> model = Embedder.build(weights="random", pooling="jcf-4-2", dim=16, size=64).eval()
    >>> a, b = np.zeros((64, 64, 3), np.uint8), np.full((64, 64, 3), 200, np.uint8)
    >>> why = pair(model, a, b)
    >>> why.links.shape, bool(abs(why.links.sum() - why.similarity) < 1e-5)
    ((4, 4), True)
    """
    if others is not None:
        others = distinct.checked(others, model.dim)
    first, second = _places(model, a, device), _places(model, b, device)
    if not (first.additive and second.additive):
        from secondsight.explain import gradients

        return gradients.pair(first, second)
    p_a, p_b = first.scaled, second.scaled
    links = algebra.links(p_a, p_b)
    parts = model.config.normalise
    return Explanation(
        similarity=float(links.sum()),
        links=links.float().numpy(),
        a=links.sum(1).view(first.grid).numpy(),
        b=links.sum(0).view(second.grid).numpy(),
        effect_a=algebra.effects(p_a, first.unit, second.unit, parts).view(first.grid).numpy(),
        effect_b=algebra.effects(p_b, second.unit, first.unit, parts).view(second.grid).numpy(),
        places_a=first,
        places_b=second,
        others=others,
    )


def _places(model: Embedder, picture: Any, device) -> Places:
    if not isinstance(picture, Places):
        return places(model, picture, device=device)
    if picture.model is not model and picture.model.fingerprint() != model.fingerprint():
        raise ConfigError(
            f"{picture.name}: its places were made by another model; only vectors of one model can be compared"
        )
    return picture


def _largest(values: np.ndarray, among: np.ndarray, count: int) -> np.ndarray:
    """The places of the ``count`` largest values by size, largest first."""
    size = np.abs(values[among])
    if count < len(among):
        kept = np.sort(np.argpartition(-size, count)[:count])
        among, size = among[kept], size[kept]
    return among[np.argsort(-size, kind="stable")]


def _rounded(values: np.ndarray) -> list:
    return np.round(values.astype(np.float64), 6).tolist()
