"""The embedder: backbone, reduction, pooling and normalisation, assembled in one place."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight import backbones, pooling
from secondsight.backbones import Backbone
from secondsight.calibration import Calibration
from secondsight.data.loading import transforms
from secondsight.data.loading.transforms import Transform
from secondsight.errors import ConfigError
from secondsight.functional.losses.pairs import unit_parts
from secondsight.model.config import TRAINING_ONLY, ModelConfig
from secondsight.model.origin import Origin
from secondsight.model.reduction import Reduction
from secondsight.model.views import VIEWS, mean
from secondsight.pooling import POOLINGS, Pooling, family
from secondsight.pooling.contract import Features, Grid
from secondsight.pooling.feature_samples import Mapped
from secondsight.strict_toml import validate


class Embedder(nn.Module):
    """Images in, unit vectors out. ``Embedder.build`` makes one from names; the parts are plain attributes."""

    def __init__(self, *, config: ModelConfig, backbone: Backbone, reduction: Reduction | None, pooling: Pooling):
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.reduction = reduction
        self.pooling = pooling
        self.keep = nn.Parameter(torch.eye(pooling.out_dim, config.keep)) if config.keep else None
        self.origin: Origin | None = None
        self.calibration: Calibration | None = None  # what cosines of its vectors mean
        sizes = [size for size, _ in config.normalise]
        if sizes and sum(sizes) != self.dim:
            raise ConfigError(f"the parts {sizes} to normalise add up to {sum(sizes)}, not to {self.dim}")

    @classmethod
    def build(cls, *, backbone: str | Backbone = "efficientnet-lite0", **keywords: Any) -> Embedder:
        """An embedder from names: ``Embedder.build(backbone="vgg16", pooling="jcf-32-8", dim=512)``.

        Args:
            backbone: A name that ``secondsight backbones`` lists, or a backbone.
            keywords: The other fields of ``ModelConfig``, which says what each of them moves.

        >>> model = Embedder.build(weights="random", pooling="jcf-4-2", dim=16).eval()
        >>> model(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape
        torch.Size([2, 16])
        """
        if isinstance(backbone, str):
            return cls.from_config(validate(ModelConfig, {"backbone": backbone, **keywords}, source="Embedder.build"))
        described = describe(backbone)
        described["backbone_options"] |= keywords.pop("backbone_options", {})
        config = validate(ModelConfig, {**keywords, **described}, source="Embedder.build")
        return cls.from_config(config, backbone=backbone)

    @classmethod
    def from_config(cls, config: ModelConfig, *, backbone: Backbone | None = None) -> Embedder:
        """The model that ``config`` describes. ``backbone`` takes the place of the one that it names."""
        if config.transform is not None and not transforms.build(config.transform).deterministic:
            raise ConfigError(f"transform {config.transform!r} is random; an embedder needs a fixed one, like 'resize'")
        if backbone is None:
            options = {**config.backbone_options, "freeze": config.freeze, "freeze_norm": config.freeze_norm}
            backbone = backbones.build(config.backbone, weights=config.weights, **options)
        reduction, channels = None, backbone.out_dim
        kind, pooling_options = POOLINGS[family(config.pooling)], config.pooling_options
        if kind.two_layers:
            if len(backbone.layers) != 2:
                raise ConfigError(
                    f"{config.pooling} pools two layers, and {backbone.name} gives one: EfficientNet-Lite gives two "
                    "with backbone_options = { both = true }"
                )
            pooling_options = {"before": backbone.layers[1], **pooling_options}
        if config.reduce and not kind.skips_reduction:
            channels = config.reduce
            reduction = Reduction(
                backbone.out_dim,
                channels,
                norm_exponent=config.norm_exponent,
                learn_exponent=config.learn_exponent,
            )
        pool = pooling.build(config.pooling, channels, config.dim, **pooling_options)
        return cls(config=config, backbone=backbone, reduction=reduction, pooling=pool)

    def forward(self, images: Tensor) -> Float[Tensor, "b out"]:
        """Embeddings of unit length; ``images`` are RGB (B, 3, H, W), uint8 0–255 or floating point 0–1."""
        return self.normalise(self.raw(images))

    def raw(self, images: Tensor) -> Float[Tensor, "b out"]:
        """Embeddings before normalisation, as losses take them; while training, of the images as they are alone."""
        grid = self.backbone.grid(*images.shape[-2:])
        views = ("plain",) if self.training else self.views
        return mean([self.pool(self.backbone(VIEWS[view](images)), grid=grid) for view in views])

    def pool(
        self, features: Float[Tensor, "b l c"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        """From the backbone's local features on: reduction and pooling."""
        return self._kept(self.pooling(self.reduced(features), mask, grid=grid))

    def ended(self, sums: Float[Tensor, "b ..."]) -> Float[Tensor, "b out"]:
        """From ``pooling.kept_sums`` on, where the pooling has them."""
        return self._kept(self.pooling.ended(sums))

    def _kept(self, z: Float[Tensor, "b all"]) -> Float[Tensor, "b out"]:
        return z if self.keep is None else z @ self.keep

    def reduced(self, features: Float[Tensor, "b l c"]) -> Float[Tensor, "b l d"]:
        return features if self.reduction is None else self.reduction(features)

    def normalise(self, z: Float[Tensor, "b out"]) -> Float[Tensor, "b out"]:
        """ℓ2; with parts, each part ℓ2-normalised and given its length, then the whole ℓ2-normalised."""
        if self.config.normalise:
            sizes, lengths = zip(*self.config.normalise, strict=True)
            z = unit_parts(z, sizes, lengths)
        return nn.functional.normalize(z, dim=-1)

    @property
    def size(self) -> int:
        """Pixels a side of the images it is meant for. Others work too; the same give the figures it was judged by."""
        return self.config.size or self.backbone.preprocessing.size

    @property
    def transform(self) -> Transform:
        """From a decoded picture to the pixels that the model takes: as it was trained and judged."""
        return transforms.build(self.config.transform or "resize", self.size)

    @property
    def views(self) -> tuple[str, ...]:
        """The names in ``VIEWS`` of what an image is embedded by."""
        return ("plain", "mirror") if self.config.mirror else ("plain",)

    @property
    def dim(self) -> int:
        return self.config.keep or self.pooling.out_dim

    def parameters_after_backbone(self) -> int:
        return sum(p.numel() for name, p in self.named_parameters() if not name.startswith("backbone."))

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Initialise reduction and pooling from the backbone's local features (B, L, c), of a few hundred images.

        Args:
            features: A tensor or a re-iterable stream of them; ``secondsight.embed.features`` makes one from images.
            grid: Of the features, for poolings that use positions.
        """
        known = {}
        if self.reduction is not None:
            self.reduction.fit(features, seed=seed)
            if self.pooling.fit_takes_channels:
                known["channels"] = self.reduction.weight.detach().T
        self.pooling.fit(Mapped(features, self.reduced), grid=grid, seed=seed, **known)

    def fingerprint(self) -> str:
        """A hash of configuration and weights: equal for models that give equal embeddings, different otherwise."""
        config = self.config.model_dump(mode="json", exclude=set(TRAINING_ONLY))
        return digest(config, self.state_dict())

    def save(self, directory) -> None:
        """Write the model into ``directory``, replacing it as a whole; see ``secondsight.model.directory``."""
        from secondsight.model.directory import save

        save(self, directory)


def describe(backbone: Backbone) -> dict[str, Any]:
    """The keys of a ``ModelConfig`` that make the same backbone again."""
    options = dict(backbone.config)
    return {
        "backbone": options.pop("name"),
        "freeze": options.pop("freeze", None),
        "freeze_norm": options.pop("freeze_norm", False),
        "backbone_options": options,
    }


def digest(config: dict[str, Any], weights: dict[str, Tensor]) -> str:
    """A hash of a configuration and of weights by name."""
    found = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, tensor in sorted(weights.items()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
