"""What each codeword looks at: its typical patches, how often it is used, and how much similarity it carries."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from secondsight import files
from secondsight.data.imageset import ImageSet
from secondsight.data.loading.decode import DecodeError
from secondsight.errors import ConfigError, DataError
from secondsight.explain import page
from secondsight.explain.drawing import overlay
from secondsight.explain.places import Places, places
from secondsight.model import Embedder
from secondsight.progress import track
from secondsight.templates import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATCHES, MAPS = 10, 5
PATCH, PICTURE = 96, 150  # pixels in the page
CONTEXT = 2.0
"""A patch shows this many times its place: features have seen some of their surroundings."""


@dataclass(frozen=True, eq=False)
class Patch:
    """A place that is typical of a codeword."""

    jpeg: str
    name: str
    weight: float


@dataclass(frozen=True, eq=False)
class Codeword:
    number: int
    usage: float  # its part of all places' assignments
    strongest: float  # part of the places of which it is the strongest codeword
    carried: float  # mean of its share in the similarity of two images
    within: float | None  # of one class
    between: float | None  # of two classes
    patches: list[Patch]
    maps: list[str]

    @property
    def gap(self) -> float | None:
        """What it does to tell classes apart: its share within a class less that between classes."""
        return None if self.within is None or self.between is None else self.within - self.between


@dataclass(frozen=True, eq=False)
class Survey:
    """All codewords of a model, on some images."""

    words: list[Codeword]
    images: int
    similarity: tuple[float | None, float | None]  # mean within and between classes
    failures: int = 0

    def save(self, path: str | Path, *, title: str = "Codewords") -> None:
        """Write the page: one file, no outside host."""
        text = environment("secondsight.explain").get_template("codewords.html").render(survey=self, title=title)
        files.write_text(path, text)


def codewords(
    model: Embedder,
    images: ImageSet,
    *,
    sample: int = 300,
    seed: int = 0,
    device: str | torch.device = "cpu",
    maps: int = MAPS,
    looked: Callable[[int, int], None] = lambda done, total: None,
) -> Survey:
    """Look at a sample of images through each codeword.

    Args:
        model: One with a codebook (jcf-N, jcf-N-R).
        images: Where to look; with labels, similarity within and between classes is told apart.
        sample: Images to look at, spread over the set.
        seed: Of the choice.
        device: Where the network runs.
        maps: Images on which each codeword's map is drawn.
        looked: Told before each image how many are done, and of how many.
    """
    if not getattr(model.pooling, "codebooks", None):
        raise ConfigError(f"{model.config.pooling} has no codewords to show; poolings such as jcf-32-8 have them")
    if len(images) == 0:
        raise DataError(f"{images.root}: no images to look at")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:sample])
    seen: list[Places] = []
    rows, failures = [], 0
    for done, index in enumerate(track(chosen, "looking at images")):
        looked(done, len(chosen))
        try:
            here = places(model, images.path(int(index)), device=device)
        except DecodeError:
            failures += 1
            continue
        rows.append(int(index))
        # Features are the bulk of it; what is needed of them is kept.
        _ = here.assignment, here.scaled
        here.features = here.features[:, :0].clone()  # a view would keep all of them
        seen.append(here)
    if not seen:
        raise DataError(f"{images.root}: none of {len(chosen)} images can be read")
    labels = None if images.labels is None else np.asarray(images.labels)[rows]
    return _surveyed(seen, labels, failures, maps)


def _surveyed(seen: Sequence[Places], labels: np.ndarray | None, failures: int, maps: int) -> Survey:
    h = np.stack([_assigned(here) for here in seen])  # (images, L, N)
    strength = np.stack([here.scaled.norm(dim=1).numpy() for here in seen])  # (images, L)
    carried, within, between, means = shares(seen, labels)
    first = np.bincount(h.argmax(-1).ravel(), minlength=h.shape[-1]) / h[..., 0].size
    usage = h.mean((0, 1))
    shown = [seen[i] for i in np.linspace(0, len(seen) - 1, min(maps, len(seen))).astype(int)]
    words = [
        Codeword(
            number=n,
            usage=float(usage[n]),
            strongest=float(first[n]),
            carried=float(carried[n]),
            within=None if within is None else float(within[n]),
            between=None if between is None else float(between[n]),
            patches=_patches(seen, h[..., n] * strength),
            maps=[_map(here, n) for here in shown],
        )
        for n in track(range(h.shape[-1]), "drawing codewords")
    ]
    words.sort(key=lambda word: -(abs(word.carried) if word.within is None else abs(word.within)))
    return Survey(words, len(seen), means, failures)


def shares(
    seen: Sequence[Places], labels: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, tuple[float | None, float | None]]:
    """Each codeword's mean share in the similarity of all pairs, of pairs within a class, and of pairs of two classes.

    With z_n = Σ_l h_ln p_l, a codeword's share in a pair is ½ (⟨z_n^a, u_b⟩ + ⟨u_a, z_n^b⟩): sums over pairs are sums
    of vectors, so all pairs are counted without listing them.
    """
    units = np.stack([here.unit.numpy() for here in seen])  # (I, D)
    parts = np.stack([_assigned(here).T @ here.scaled.numpy() for here in seen])  # (I, N, D)
    own = np.einsum("ind,id->n", parts, units)  # an image with itself

    def over(members: np.ndarray) -> tuple[np.ndarray, int]:
        total = np.einsum("nd,d->n", parts[members].sum(0), units[members].sum(0))
        self_ = np.einsum("ind,id->n", parts[members], units[members])
        return total - self_, len(members) * (len(members) - 1)

    every, count = over(np.arange(len(seen)))
    everything = every / max(count, 1) if count else own / len(seen)
    if labels is None:
        return everything, None, None, (None, None)
    same, pairs = np.zeros_like(own), 0
    for label in np.unique(labels):
        some, number = over(np.flatnonzero(labels == label))
        same, pairs = same + some, pairs + number
    if pairs in (0, count):
        return everything, None, None, (None, None)
    within, between = same / pairs, (every - same) / (count - pairs)
    return everything, within, between, (float(within.sum()), float(between.sum()))


def _assigned(here: Places) -> np.ndarray:
    assert here.assignment is not None
    return here.assignment.numpy()


def _patches(seen: Sequence[Places], weight: np.ndarray) -> list[Patch]:
    """The places where a codeword weighs most, one an image."""
    best = weight.argmax(1)
    value = weight.max(1)
    order = np.argsort(-value, kind="stable")[:PATCHES]
    return [Patch(_cut(seen[i], int(best[i])), seen[i].name, float(value[i])) for i in order if value[i] > 0]


def _cut(here: Places, place: int) -> str:
    assert here.pixels is not None
    left, top, right, bottom = here.frame.place(*divmod(place, here.grid[1]))
    height, width = here.pixels.shape[:2]
    # A square around the centre of the place, moved inside where it would leave the image.
    side = min(CONTEXT * max((right - left) * width, (bottom - top) * height), height, width)
    x = float(np.clip((left + right) / 2 * width - side / 2, 0, width - side))
    y = float(np.clip((top + bottom) / 2 * height - side / 2, 0, height - side))
    part = Image.fromarray(here.pixels).crop((round(x), round(y), round(x + side), round(y + side)))
    return page.jpeg(np.array(part.resize((PATCH, PATCH), Image.Resampling.BICUBIC)), height=PATCH)


def _map(here: Places, number: int) -> str:
    values = _assigned(here)[:, number].reshape(here.grid)
    drawn = overlay(here, values, height=PICTURE)
    out = io.BytesIO()
    drawn.save(out, "JPEG", quality=80)
    return page.address(out.getvalue())
