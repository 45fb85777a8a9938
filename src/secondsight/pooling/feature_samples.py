"""What the data-driven initialisations share: features as a stream, a fair sample of it, k-means by faiss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import DataError
from secondsight.pooling.contract import Features


class Mapped:
    """A stream seen through a function, as often as it is asked for."""

    def __init__(self, features: Features, function: Callable[[Tensor], Tensor]):
        self.features, self.function = features, function

    def __iter__(self) -> Iterator[Tensor]:
        stream: Iterable[Tensor] = [self.features] if isinstance(self.features, Tensor) else self.features
        return (self.function(part) for part in stream)


def chunks(features: Features) -> Iterator[Float[Tensor, "m d"]]:
    """The stream's tensors one after the other, each flattened to (m, d) and detached.

    >>> [c.shape for c in chunks([torch.zeros(2, 3, 4), torch.zeros(5, 4)])]
    [torch.Size([6, 4]), torch.Size([5, 4])]
    """
    for tensor in [features] if isinstance(features, Tensor) else features:
        yield tensor.detach().reshape(-1, tensor.shape[-1])


def image_batches(features: Features, in_dim: int, *, of: str) -> Iterator[Float[Tensor, "b l d"]]:
    """The stream's images, at most 64 at a time, for ``of``, which is fitted from images and not from locations."""
    for tensor in [features] if isinstance(features, Tensor) else features:
        if tensor.ndim != 3:
            raise DataError(
                f"{of} is fitted from images, tensors (images, locations, {in_dim}), got one of shape "
                f"{tuple(tensor.shape)}"
            )
        yield from tensor.detach().split(64)


def sample(features: Features, limit: int, *, seed: int = 0) -> Float[Tensor, "m d"]:
    """At most ``limit`` local features, each of the stream's with the same chance; memory does not grow with the
    stream.

    Every feature draws a random key and the ``limit`` smallest keys stay, so the result does not depend on the
    chunking.
    """
    generator = torch.Generator().manual_seed(seed)
    kept: Tensor | None = None
    keys = torch.empty(0, dtype=torch.float64)
    for chunk in chunks(features):
        fresh = torch.rand(len(chunk), generator=generator, dtype=torch.float64)
        kept = chunk if kept is None else torch.cat([kept, chunk])
        keys = torch.cat([keys, fresh])
        if len(keys) > limit:
            keys, order = keys.topk(limit, largest=False, sorted=False)
            kept = kept[order.to(kept.device)]
    return usable(kept)


def usable(found: Tensor | None) -> Tensor:
    """What was made of a stream of local features, if there were any and all of them finite."""
    if found is None or len(found) == 0:
        raise DataError("no local features to fit from: the stream is empty")
    if not torch.isfinite(found).all():
        raise DataError("the local features to fit from hold NaN or infinite values; find the image that causes them")
    return found


def kmeans(
    points: Float[Tensor, "m d"], k: int, *, spherical: bool = False, seed: int = 0, iterations: int = 25
) -> Float[Tensor, "k d"]:
    """k centres by Lloyd's algorithm (faiss) from a k-means++ start; ``spherical`` clusters directions, with centres
    of length 1.
    """
    if len(points) < k:
        raise DataError(f"{k} codewords need at least {k} local features to fit from, got {len(points)}")
    import faiss

    data = points.detach().float().cpu()
    if spherical:
        data = torch.nn.functional.normalize(data, dim=1)
    engine = faiss.Kmeans(
        data.shape[1],
        k,
        niter=iterations,
        seed=seed,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=2**30,
    )
    engine.train(data.contiguous().numpy(), init_centroids=_spread_out(data, k, seed).numpy())
    return torch.from_numpy(engine.centroids).reshape(k, -1).clone().to(points)


def _spread_out(points: Float[Tensor, "m d"], k: int, seed: int) -> Float[Tensor, "k d"]:
    """k-means++ (Arthur & Vassilvitskii 2007): each next centre is drawn with a chance ∝ its squared distance to those
    before.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(len(points), (), generator=generator))]
    far = (points - points[chosen[0]]).square().sum(1)
    for _ in range(1, k):
        # Where all points coincide with centres, any will do. (Sums in float64: multinomial refuses more than 2²⁴
        # points.)
        mass = far.double().cumsum(0)
        at = torch.rand((), generator=generator, dtype=torch.float64) * mass[-1]
        chosen.append(min(int(torch.searchsorted(mass, at)), len(points) - 1))
        far = torch.minimum(far, (points - points[chosen[-1]]).square().sum(1))
    return points[chosen].contiguous()
