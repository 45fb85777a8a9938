"""Small models for the tests of explanations: every additive pooling, every ending, on random features of a grid."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from secondsight import Embedder, backbones
from secondsight.explain import Places, from_features
from secondsight.explain.geometry import Frame

GRID = (3, 4)
OUT = 6

ADDITIVE: dict[str, dict[str, Any]] = {
    "average": {},
    "bp": {},
    "bp-3": {},
    "lrbp": {},
    "fbn": {},
    "hadamard": {},
    "cbp-rm-32": {"normalise": "none"},
    "cbp-ts-32": {"normalise": "none"},
    "vlad-3": {"normalise": "none"},
    "netvlad-3": {"normalise": "none"},
    "fisher-3": {"normalise": "none"},
    "fishernet-3": {"normalise": "none"},
    "mfa-fv-3-2": {"normalise": "none"},
    "mfafvnet-3-2": {"normalise": "none"},
    "vlat-3": {"normalise": "none"},
    "sta-2": {"normalise": "none"},
    "ista-2": {"normalise": "none"},
    "jcf": {},
    "jcf-4": {"assign": "top-2", "gains": True},
    "jcf-4-2": {"codebooks": 2, "reduce": "mean"},
    "jcf-pairs-4-2": {},
}
"""Pooling → options with which it is a sum over places."""

ENDINGS: tuple[dict[str, Any], ...] = (
    {},
    {"power": 0.5},
    {"power": 0.25, "whiten": 0.5},
    {"whiten": 0.0},
    {"power": 0.5, "whiten": 0.25, "width": 9},
)


@functools.cache
def network(*, two_layers: bool = False) -> backbones.Backbone:
    made = backbones.build("efficientnet-lite0", weights="random", head=False).eval()
    made.layers = (256, 64) if two_layers else ()  # random features do not mind what they are called
    return made


@functools.cache
def model(
    name: str, *, ending: int = 0, mirror: bool = False, keep: bool = False, parts: bool = False, projection: str = ""
) -> Embedder:
    """A fitted model; do not change it."""
    torch.manual_seed(7)
    options = dict(ADDITIVE.get(name, {}))
    if name.startswith("jcf"):
        options |= ENDINGS[ending]
    if projection:
        options["projection"] = projection
    made = Embedder.build(
        backbone=network(two_layers=name.startswith("jcf-pairs")),
        pooling=name,
        dim=OUT,
        reduce=8,
        norm_exponent=0.5,
        mirror=mirror,
        pooling_options=options,
    ).eval()
    made.fit([torch.randn(20, 12, 320).relu() for _ in range(2)], grid=GRID)
    if keep:
        made.config = made.config.model_copy(update={"keep": 4})
        made.keep = nn.Parameter(torch.randn(OUT, 4))
    if parts:
        sizes = ((1, 0.5), (made.dim - 1, 2.0))
        made.config = made.config.model_copy(update={"normalise": sizes})
    return made


def features(seed: int, *, views: int = 1, shift: float = 0.0) -> Tensor:
    """(V, L, c): positive where a network's are, with a part that all images share."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(views, GRID[0] * GRID[1], 320, generator=generator) + shift).relu()


def image(model: Embedder, seed: int, *, mask: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Places:
    x = features(seed, views=1 + model.config.mirror).to(dtype)
    return from_features(model, x, frame=Frame(GRID), mask=mask)
