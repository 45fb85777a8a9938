"""A trained model made smaller: shared projectors in closed form, fewer output numbers, and what that costs.

jcf-N → jcf-N-R    the best R shared projectors for the N that were learned (``functional.compression``)
D → K numbers      the K principal axes of the embeddings, folded into the last linear map where there is one
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from secondsight.data import ImageSet
from secondsight.embed import features
from secondsight.errors import ConfigError
from secondsight.functional.pooling.compression import share_projectors
from secondsight.model import Embedder, ModelConfig
from secondsight.pooling import JCF, Average, Bilinear, Projected
from secondsight.pooling.contract import Grid
from secondsight.pooling.mixers import Linear
from secondsight.pooling.principal import main_directions


@dataclass(frozen=True)
class Sample:
    """Local features of sample images, as the backbone gives them."""

    features: list[Tensor]  # (B, L, c) each
    grid: Grid | None = None

    @classmethod
    def of(cls, model: Embedder, images: ImageSet, *, count: int = 1000, seed: int = 0) -> Sample:
        """Of ``count`` images drawn at random: a thousand say enough about how codewords are used."""
        chosen = np.random.default_rng(seed).permutation(len(images))[:count]
        some = images.subset(np.sort(chosen))
        return cls(features(model, some, count=len(some)), model.backbone.grid(model.size, model.size))

    def pooled(self, model: Embedder) -> Tensor:
        """(images, D): unit-length embeddings of the sample."""
        with torch.no_grad():
            return torch.cat([model.normalise(model.pool(x, grid=self.grid)) for x in self.features])


@dataclass(frozen=True)
class CompressionCost:
    """What a compression did."""

    parameters: tuple[int, int]  # of everything after the backbone, before and after
    dim: tuple[int, int]
    lost: dict[str, float] = field(default_factory=dict)  # share of the energy that the closed form gives up, by factor
    cosine: float | None = None  # mean cosine of the sample's embeddings before and after, where the size is the same


def compress(
    model: Embedder,
    *,
    projectors: int | None = None,
    dim: int | None = None,
    sample: Sample | None = None,
    steps: int = 0,
    seed: int = 0,
) -> tuple[Embedder, CompressionCost]:
    """A smaller copy of ``model``; the model itself is left as it is.

    Args:
        projectors: R, for models that pool with ``jcf-N`` or ``jcf-N-R'``.
        dim: K, numbers per image; needs ``sample``.
        sample: Weighs codewords by their use and features by their spread. Without it all count alike.
        steps: Steps of fine-tuning towards the large model's embeddings of the sample (no labels needed); needs
            ``sample``.
        seed: Of the fine-tuning's batches.
    """
    if projectors is None and dim is None:
        raise ConfigError("nothing to compress to: give a number of projectors or of dimensions")
    if sample is None and (dim is not None or steps):
        raise ConfigError("principal axes and fine-tuning need sample images; give some with --data")
    small, lost = model, {}
    if projectors is not None:
        small, lost = _share(model, projectors, sample)
        if steps:
            assert sample is not None
            _distil(small, model, sample, steps, seed)
    cosine = None
    if sample is not None and projectors is not None:
        cosine = float((sample.pooled(small) * sample.pooled(model)).sum(1).mean())
    if dim is not None:
        assert sample is not None
        small = _truncate(small, dim, sample)
    return small.eval(), CompressionCost(
        (model.parameters_after_backbone(), small.parameters_after_backbone()), (model.dim, small.dim), lost, cosine
    )


@torch.no_grad()
def _share(model: Embedder, r: int, sample: Sample | None) -> tuple[Embedder, dict[str, float]]:
    large = model.pooling
    if not isinstance(large, JCF) or large.codewords is None:
        raise ConfigError(f"{model.config.pooling} has no codebook of projectors to share; compress a jcf-N")
    if not all(isinstance(mixer, Linear) for mixer in large.mixers):
        raise ConfigError(
            "projectors can be shared in closed form under linear mixing only; this model mixes by a module"
        )
    now = large.projectors or large.codewords
    if not 1 <= r < now:
        raise ConfigError(f"{model.config.pooling} has {now} projectors; share between 1 and {now - 1}, got {r}")
    name = f"jcf-{large.codewords}-{r}"
    config = model.config.model_copy(update={"pooling": name})
    small = _copy(model, config, without=("pooling.uv", "pooling.offset", "pooling.mixers"))
    pool = small.pooling
    assert isinstance(pool, JCF)
    lost = {}
    for name, w, mixer, (full, usage, moment) in zip(
        "uv", (pool.u, pool.v), pool.mixers, _sides(model, large, sample), strict=True
    ):
        a, shared, lost[name] = share_projectors(full, r, usage, moment)
        mixer.get_parameter("weight").copy_(a)
        w.copy_(shared[:, : large.in_dim])
        if name == "v" and pool.offset is not None:
            pool.offset.copy_(shared[:, large.in_dim])
    return small, lost


def _sides(model: Embedder, pool: JCF, sample: Sample | None) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
    """For each factor: its N projectors, E[h hᵀ] and E[x xᵀ]. The second one's offset is one more input, always 1."""
    uv, bias = pool.unshared()
    u, v = uv.chunk(2, dim=-1)
    if bias is not None:
        v = torch.cat([v, bias[:, None, pool.width :]], dim=1)
    if sample is None:
        return [(u, None, None), (v, None, None)]
    words, d = pool.codewords or 1, pool.in_dim
    usage = [torch.zeros(words, words, dtype=torch.float64) for _ in range(2)]
    moment = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    for part in sample.features:
        x = model.reduced(part)
        for total, h in zip(usage, pool.assignments(x), strict=True):
            total += (h.flatten(0, 1).T @ h.flatten(0, 1)).double()
        ones = nn.functional.pad(x.flatten(0, 1), (0, 1), value=1.0)
        moment += (ones.T @ ones).double()
    return [(u, usage[0], moment[:d, :d]), (v, usage[1], moment if bias is not None else moment[:d, :d])]


@torch.no_grad()
def _truncate(model: Embedder, k: int, sample: Sample) -> Embedder:
    if not 1 <= k < model.dim:
        raise ConfigError(f"the model gives {model.dim} numbers per image; keep between 1 and {model.dim - 1}, got {k}")
    if model.config.normalise:
        raise ConfigError("a model whose parts are normalised apart cannot be cut to principal axes of the whole")
    z = sample.pooled(model)
    axes = main_directions(z.double(), k).to(z)
    weight = _last_linear_map(model)
    if weight is None:
        # z_i is a product of two factors, and a mixture of products is not one: the axes stay a map of their own.
        config = model.config.model_copy(update={"keep": k})
        small = _copy(model, config, without=("keep",))
        assert small.keep is not None
        small.keep.copy_(axes if model.keep is None else model.keep @ axes)
        return small
    name, columns, folded = weight
    small = _copy(model, model.config.model_copy(update={"dim": k}), without=(name,))
    small.get_parameter(name).copy_(folded @ axes if columns else axes.T @ folded)
    return small


def _last_linear_map(model: Embedder) -> tuple[str, bool, Tensor] | None:
    """Name of the matrix that the pooling ends in, whether outputs are its columns, and the matrix; None where it is
    no such end.
    """
    pool = model.pooling
    if model.keep is not None:
        return None
    if isinstance(pool, Average):
        return "pooling.weight", True, pool.weight
    if isinstance(pool, Bilinear) and pool.weight is not None:
        return "pooling.weight", True, pool.weight
    if isinstance(pool, Projected) and pool.method == "linear":
        return "pooling.weight", False, pool.weight
    return None


def _distil(small: Embedder, large: Embedder, sample: Sample, steps: int, seed: int, batch: int = 64) -> None:
    """Move the shared projectors so that the small model's embeddings point where the large one's do."""
    targets = sample.pooled(large)
    with torch.no_grad():
        inputs = torch.cat([small.reduced(x) for x in sample.features])
    assert isinstance(small.pooling, JCF)
    learned = [small.pooling.uv, *(m.weight for m in small.pooling.mixers if isinstance(m, Linear))]
    learned += [] if small.pooling.offset is None else [small.pooling.offset]
    optimiser = torch.optim.Adam(
        [{"params": [p], "lr": 1e-2 * float(p.detach().square().mean().sqrt())} for p in learned]
    )
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] *= 1 if step == 0 else (1 - step / steps) / (1 - (step - 1) / steps)
        rows = torch.randint(len(inputs), (min(batch, len(inputs)),), generator=generator)
        z = small.normalise(small.pooling(inputs[rows], grid=sample.grid))
        loss = 1 - (z * targets[rows]).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _copy(model: Embedder, config: ModelConfig, *, without: tuple[str, ...]) -> Embedder:
    """A new model of ``config`` with all of ``model``'s weights but those whose names start with ``without``."""
    copy = Embedder.from_config(config.model_copy(update={"weights": "random"}))
    copy.origin = model.origin
    kept = {name: t for name, t in model.state_dict().items() if not name.startswith(without)}
    missing = copy.load_state_dict(kept, strict=False)
    assert not missing.unexpected_keys
    assert all(name.startswith(without) for name in missing.missing_keys)
    return copy.eval()
