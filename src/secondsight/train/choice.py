"""Which pooling suits these images: found in seconds, on local features that are there already, on classes held out.

Every candidate is fitted without labels on one half of the classes, given the best metric that a formula can learn from
their labels, and judged on the other half; then the halves change places, so that every image judges once. The metric
stands for what training would do: it whitens what differs *within* classes,

    S = E[(z − μ_y)(z − μ_y)ᵀ],    z ← (S + s · tr(S)/D · I)^(−½) z ,

on z of unit length. A head that learns by gradient ends up near it, in minutes instead of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.errors import DataError, require_known
from secondsight.functional.pooling.eigenvectors import eigh

SHRINK = 0.3
"""s: how much every direction counts as noise, whatever the training classes say."""

DOUBT = 2.0
"""Standard errors by which a rival must be ahead."""

BLOCK = 1024
"""Queries compared at a time."""


class Head(Protocol):
    """What comes after the backbone; an ``Embedder`` is one."""

    def fit(self, features: Any, *, grid: Any = None, seed: int = 0) -> None: ...

    def pool(self, features: Tensor, mask: Any = None, *, grid: Any = None) -> Tensor: ...


@dataclass(frozen=True)
class Choice:
    """``name`` is what to train; ``recalls`` what every candidate had (Recall@1, 0 to 1), ``images`` on how many."""

    name: str
    preferred: str
    recalls: dict[str, float]
    images: int
    ahead: float  # of the preferred one, in standard errors; 0 where that was kept

    def __str__(self) -> str:
        recalls = ", ".join(f"{name} {100 * recall:.1f}" for name, recall in self.recalls.items())
        verdict = f"{self.name} is taken"
        if self.name == self.preferred:
            best = max(self.recalls.values()) == self.recalls[self.name]
            verdict = f"{self.name} is kept" + ("" if best else ", because none leads beyond doubt")
        return f"{verdict}: R@1 on held-out training classes, before training, {self.images:,} images: {recalls}"


def choose_pooling(
    features: Float[Tensor, "n l c"],
    labels: Int[Tensor, " n"],
    candidates: Mapping[str, Callable[[], Head]],
    *,
    preferred: str,
    grid: tuple[int, int] | None = None,
    seed: int = 0,
) -> Choice:
    """The candidate to train with: ``preferred``, unless another is better beyond doubt.

    Args:
        features: Local features of images to learn from; some thousand images are plenty.
        labels: Their classes.
        candidates: Name → a function that builds what comes after the backbone.
        preferred: The one that is taken where the others are no better, by ``DOUBT`` standard errors of the difference.
        grid, seed: Passed on to the fit.
    """
    require_known("candidate", preferred, candidates)
    halves = class_halves(labels, seed=seed)
    right: dict[str, Tensor] = {}
    for name, build in candidates.items():
        parts = []
        for learn, held_out in (halves, halves[::-1]):
            head = build()
            head.fit([features[some].float() for some in learn.split(64)], grid=grid, seed=seed)
            metric = learned_metric(_pooled(head, features[learn], grid), labels[learn])
            parts.append(hits(_pooled(head, features[held_out], grid) @ metric, labels[held_out]))
        right[name] = torch.cat(parts)
    ours, best = right[preferred], max(right, key=lambda name: int(right[name].sum()))
    # Of a paired comparison only the images count on which the two disagree (McNemar).
    differing = int((right[best] != ours).sum())
    ahead = (int(right[best].sum()) - int(ours.sum())) / max(1, differing) ** 0.5
    taken = best if ahead > DOUBT else preferred
    recalls = {name: found.float().mean().item() for name, found in right.items()}
    return Choice(taken, preferred, recalls, len(ours), ahead if taken != preferred else 0.0)


def class_halves(labels: Int[Tensor, " n"], *, seed: int = 0) -> tuple[Int[Tensor, " a"], Int[Tensor, " b"]]:
    """The images of one random half of the classes, and of the other."""
    classes = labels.unique()
    if len(classes) < 4:
        raise DataError(
            f"{len(classes)} classes are too few to choose a pooling on: two to learn from and two to evaluate on"
        )
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    first = torch.isin(labels, order[: len(order) // 2])
    return first.nonzero().flatten(), (~first).nonzero().flatten()


def learned_metric(
    z: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, shrink: float = SHRINK
) -> Float[Tensor, "d d"]:
    """(S + s · tr(S)/D · I)^(−½) of unit vectors; symmetric."""
    _, index, counts = labels.unique(return_inverse=True, return_counts=True)
    means = z.new_zeros(len(counts), z.shape[1]).index_add_(0, index, z) / counts[:, None]
    within = z - means[index]
    values, vectors = eigh((within.T @ within).double() / len(z))
    values = values.clamp_min(0)
    scale = (values + shrink * values.mean()).clamp_min(1e-12) ** -0.5
    return ((vectors * scale) @ vectors.T).to(z)


def hits(z: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Whether the nearest other vector, by cosine, is of the same class."""
    z = torch.nn.functional.normalize(z, dim=1)
    found = []
    for start in range(0, len(z), BLOCK):
        similarity = z[start : start + BLOCK] @ z.T
        similarity[torch.arange(len(similarity)), torch.arange(start, start + len(similarity))] = -torch.inf
        found.append(labels[similarity.argmax(1)] == labels[start : start + BLOCK])
    return torch.cat(found)


@torch.no_grad()
def _pooled(head: Head, features: Tensor, grid: tuple[int, int] | None) -> Tensor:
    z = torch.cat([head.pool(some.float(), grid=grid) for some in features.split(64)])
    return torch.nn.functional.normalize(z, dim=1)
