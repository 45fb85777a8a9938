"""The embedder: backbone, reduction, pooling and normalisation, assembled in one place, saved as one directory."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from jaxtyping import Bool, Float
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from secondsight import backbones, files, pooling
from secondsight.backbones import Backbone
from secondsight.errors import ConfigError, SecondsightError, WeightsError, nearest
from secondsight.functional.losses.pairs import unit_parts
from secondsight.pooling import POOLINGS, Pooling, family
from secondsight.pooling.contract import Features, Grid
from secondsight.pooling.names import saved_name
from secondsight.reduction import Reduction

CONFIG, WEIGHTS = "config.toml", "model.safetensors"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReductionConfig(Strict):
    dim: int = 256  # channels that the pooling sees; more keep more detail, and cost d (jcf) or d² (bp) each
    norm_exponent: float = 1.0  # 1 = ℓ2 at every location (the paper), 0 = keep the norm, a location's saliency
    learn_exponent: bool = False


class PoolingConfig(Strict):
    name: str = "jcf-32-8"
    dim: int = 512  # numbers per image
    options: dict[str, Any] = Field(default_factory=dict)  # the pooling's own keywords


class ModelConfig(Strict):
    """What ``config.toml`` holds: enough to build the model again, without its weights."""

    format: int = 1
    backbone: dict[str, Any]
    reduction: ReductionConfig | None = None  # without it the pooling sees all channels as they are
    pooling: PoolingConfig = PoolingConfig()
    size: int | None = None  # pixels a side of the images it was trained with; without it the backbone's own
    transform: Literal["resize", "resize-crop"] = "resize"  # how it was judged, and wants to be shown images
    mirror: bool = False  # an image is embedded together with its mirror image, in twice the time
    keep: int | None = None  # numbers left of an image by a linear map after the pooling (see `secondsight compress`)
    normalise: tuple[tuple[int, float], ...] = ()
    """Parts that are normalised apart, with the length each is given (an ensemble's); () normalises the whole."""


class Embedder(nn.Module):
    """Images in, unit vectors out. ``Embedder.build`` makes one from names; the parts are plain attributes."""

    def __init__(self, *, config: ModelConfig, backbone: Backbone, reduction: Reduction | None, pooling: Pooling):
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.reduction = reduction
        self.pooling = pooling
        self.keep = nn.Parameter(torch.eye(pooling.out_dim, config.keep)) if config.keep else None
        sizes = [size for size, _ in config.normalise]
        if sizes and sum(sizes) != self.dim:
            raise ConfigError(f"the parts {sizes} to normalise add up to {sum(sizes)}, not to {self.dim}")

    @classmethod
    def build(
        cls,
        *,
        backbone: str | Backbone,
        pooling: str = "jcf-32-8",
        dim: int = 512,
        weights: str | Path | None = "default",
        freeze: str | None = None,
        reduce: int | None = 256,
        norm_exponent: float = 1.0,
        learn_exponent: bool = False,
        size: int | None = None,
        transform: str = "resize",
        mirror: bool = False,
        normalise: tuple[tuple[int, float], ...] = (),
        backbone_options: dict[str, Any] | None = None,
        pooling_options: dict[str, Any] | None = None,
    ) -> Embedder:
        """An embedder from names.

        Args:
            backbone: A name that ``secondsight backbones`` lists, or a backbone.
            pooling: A name such as ``jcf-32-8``; ``secondsight poolings`` lists the families.
            dim: Numbers per image.
            weights, freeze, backbone_options: See ``secondsight.backbones.build``.
            reduce: Channels that the pooling sees; None for all of the backbone's. ``average`` and its like always see
                all.
            norm_exponent, learn_exponent: See ``Reduction``.
            size: Pixels a side of the images it is meant for; None for the backbone's own.
            transform: How they are made square: ``"resize"``, or ``"resize-crop"`` for their centre.
            mirror: Embed an image as the mean of its own and its mirror image's embedding, before they are normalised;
                training sees one image at a time all the same.
            normalise: Parts that are normalised apart, each its size and the length it is given; () for the whole.
            pooling_options: The pooling's own keywords.
        """
        if isinstance(backbone, str):
            backbone = backbones.build(backbone, weights=weights, freeze=freeze, **(backbone_options or {}))
        all_channels = reduce is None or POOLINGS[family(pooling)].skips_reduction
        config = ModelConfig(
            backbone=backbone.config,
            reduction=None
            if all_channels
            else ReductionConfig(dim=reduce or 0, norm_exponent=norm_exponent, learn_exponent=learn_exponent),
            pooling=PoolingConfig(name=pooling, dim=dim, options=pooling_options or {}),
            size=size,
            transform=transform,  # pyright: ignore[reportArgumentType] pydantic checks it
            mirror=mirror,
            normalise=normalise,
        )
        return cls.from_config(config, backbone=backbone)

    @classmethod
    def from_config(cls, config: ModelConfig, *, backbone: Backbone | None = None) -> Embedder:
        """The model that ``config`` describes; with random weights, unless ``backbone`` brings its own."""
        backbone = backbone or backbones.build(**config.backbone, weights=None)
        reduction, channels = None, backbone.out_dim
        if config.reduction is not None:
            channels = config.reduction.dim
            reduction = Reduction(
                backbone.out_dim,
                channels,
                norm_exponent=config.reduction.norm_exponent,
                learn_exponent=config.reduction.learn_exponent,
            )
        pool = pooling.build(config.pooling.name, channels, config.pooling.dim, **config.pooling.options)
        return cls(config=config, backbone=backbone, reduction=reduction, pooling=pool)

    def forward(self, images: Tensor) -> Float[Tensor, "b out"]:
        """Embeddings of unit length; ``images`` are RGB (B, 3, H, W), uint8 0–255 or floating point 0–1."""
        return self.normalise(self.raw(images))

    def raw(self, images: Tensor) -> Float[Tensor, "b out"]:
        """Embeddings before normalisation, as losses take them."""
        grid = self.backbone.grid(*images.shape[-2:])
        views = [images, images.flip(-1)] if self.config.mirror and not self.training else [images]
        return mean([self.pool(self.backbone(view), grid=grid) for view in views])

    def pool(
        self, features: Float[Tensor, "b l c"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        """From the backbone's local features on: reduction and pooling."""
        z = self.pooling(self.reduced(features), mask, grid=grid)
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
    def views(self) -> int:
        """Of an image, that it is embedded by: 2 with its mirror image."""
        return 2 if self.config.mirror else 1

    @property
    def dim(self) -> int:
        return self.config.keep or self.pooling.out_dim

    @torch.no_grad()
    def fit(self, batches: Iterable[Tensor], *, seed: int = 0) -> None:
        """Initialise reduction and pooling from batches of images: a few hundred images are plenty."""
        was_training = self.training
        self.eval()
        grid, features = None, []
        for images in batches:
            grid = self.backbone.grid(*images.shape[-2:])
            features.append(self.backbone(images))
        self.train(was_training)
        self.fit_features(features, grid=grid, seed=seed)

    @torch.no_grad()
    def fit_features(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """As ``fit``, from the backbone's local features (B, L, c): a tensor or a re-iterable stream of them."""
        known = {}
        if self.reduction is not None:
            self.reduction.fit(features, seed=seed)
            if self.pooling.fit_takes_channels:
                known["channels"] = self.reduction.weight.detach().T
        self.pooling.fit(_Mapped(features, self.reduced), grid=grid, seed=seed, **known)

    def fingerprint(self) -> str:
        """A hash of configuration and weights: equal for models that give equal embeddings, different otherwise."""
        digest = hashlib.sha256(json.dumps(self.config.model_dump(mode="json"), sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def save(self, directory: str | Path) -> None:
        """Write ``model.safetensors`` and ``config.toml`` into ``directory``, replacing it as a whole."""
        from safetensors.torch import save_file

        config = self.config.model_dump(mode="python", exclude_none=True)
        try:
            text = tomli_w.dumps(config)
        except TypeError as error:
            raise ConfigError(f"this model was built from parts that a file cannot describe: {error}") from error
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        with files.replacing_directory(directory) as fresh:
            save_file(weights, fresh / WEIGHTS, metadata={"format": "pt", "fingerprint": self.fingerprint()})
            (fresh / CONFIG).write_text(text, encoding="utf-8")


def mean(views: Sequence[Float[Tensor, "b out"]]) -> Float[Tensor, "b out"]:
    """Of the embeddings of an image's views, before normalisation."""
    return views[0] if len(views) == 1 else torch.stack(list(views)).mean(0)


def load(directory: str | Path, *, device: str | torch.device = "cpu") -> Embedder:
    """The model that ``Embedder.save`` wrote, in evaluation mode; its embeddings are the saved one's, bit for bit."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise WeightsError(f"{folder} is not a saved model: it has no {name}")
    config = read_config(folder / CONFIG)
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise WeightsError(f"{folder / WEIGHTS} is damaged or not a safetensors file: {error}") from error
    name = saved_name(config.pooling.name, weights)
    config = config.model_copy(update={"pooling": config.pooling.model_copy(update={"name": name})})
    model = Embedder.from_config(config)
    _load_strictly(model, weights, folder / WEIGHTS)
    return model.to(device).eval()


def read_config(path: Path) -> ModelConfig:
    """``config.toml``, checked: an unknown key is an error that names the nearest valid one."""
    try:
        return ModelConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_problem(error)}") from error
    except SecondsightError as error:
        raise ConfigError(f"{path}: {error}") from error


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] != "extra_forbidden":
        return f"{place}: {problem['msg']}, got {problem['input']!r}"
    owner = {1: ModelConfig, 2: {"reduction": ReductionConfig, "pooling": PoolingConfig}.get(str(problem["loc"][0]))}
    valid = getattr(owner.get(len(problem["loc"])), "model_fields", {})
    near = nearest(str(problem["loc"][-1]), valid)
    return f"unknown key {place!r}" + (f"; did you mean {near!r}?" if near else f"; valid: {', '.join(valid)}")


def _load_strictly(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or unexpected:
        raise WeightsError(
            f"{path} does not fit its config: missing {missing or 'nothing'}, unexpected {unexpected or 'nothing'}"
        )
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise WeightsError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the config asks for {tuple(own[name].shape)}"
            )
    model.load_state_dict(weights)


class _Mapped:
    """A stream seen through a function, as often as it is asked for."""

    def __init__(self, features: Features, function):
        self.features, self.function = features, function

    def __iter__(self):
        for tensor in [self.features] if isinstance(self.features, Tensor) else self.features:
            yield self.function(tensor)
