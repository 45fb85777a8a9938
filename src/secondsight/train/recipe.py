"""The recipe of a training run: every choice, typed, with a default that works and a word on what moves it.

A recipe is a small TOML file; ``secondsight.train.recipe_file`` reads it, and a run directory keeps it as
``config.toml``. Keys that no figure depends on are marked ``NO_FIGURE``: a run may be resumed with other ones.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from secondsight.data.loading.transforms import TRANSFORMS
from secondsight.errors import ConfigError, require_known
from secondsight.evaluate.figures import figure_names
from secondsight.losses import LOSSES
from secondsight.model import ModelConfig
from secondsight.strict_toml import NO_FIGURE, Strict, free_keys


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # TOML has lists only


LossName = Annotated[str, AfterValidator(partial(require_known, "loss", valid=LOSSES))]
TransformName = Annotated[str, AfterValidator(partial(require_known, "transform", valid=TRANSFORMS))]
Integers = Annotated[tuple[int, ...], BeforeValidator(_as_tuple)]
Pair = Annotated[tuple[float, float], BeforeValidator(_as_tuple)]


class DataSection(Strict):
    """Which images, and how training sees them. (How evaluation does is the model's: model.size, model.transform.)"""

    path: Annotated[str, NO_FIGURE] = (
        ""  # a folder, a table, or NAME:PATH (`secondsight data list`); --data overrides it
    )
    missing: Annotated[Literal["error", "skip"], NO_FIGURE] = "error"  # what to do where listed files are not there
    min_images: int = Field(default=2, ge=1)  # drop classes with fewer images: a class of one has no pair to learn from
    max_images: int | None = Field(default=None, ge=2)  # of a class to learn from; fewer teach less, in less time
    transform: TransformName = "random-crop"  # "resize" (the paper's) is cacheable
    workers: Annotated[int | None, Field(ge=0), NO_FIGURE] = None  # decoding threads; None = chosen from the cores
    cache: bool | None = None  # frozen-feature cache; None = whenever a frozen prefix and a fixed transform allow it
    cache_dir: Annotated[str | None, NO_FIGURE] = None  # where the cache lives; None = the user's cache folder


class LossSection(Strict):
    name: LossName = "proxy-anchor"  # `secondsight losses` lists them
    options: dict[str, Any] = Field(default_factory=dict)  # the loss's own, e.g. margin


class OptimizerSection(Strict):
    name: Literal["sgd", "adam", "adamw"] = "adamw"  # adamw needs the least tuning
    lr: float = Field(default=1e-4, ge=0)  # the backbone's: raise until validation recall falls, then halve
    head_lr: float | None = Field(default=None, ge=0)  # reduction and pooling; None = 10 × lr, 0 = as fitted
    end_lr: float | None = Field(default=None, ge=0)  # jcf's last matrix and its gains; None = head_lr
    proxy_lr: float | None = Field(default=None, ge=0)  # the loss's own parameters; None = 100 × lr (Proxy-Anchor's)
    weight_decay: float = Field(default=1e-4, ge=0)  # raise it when training recall runs away from validation recall
    momentum: float = Field(default=0.9, ge=0, lt=1)  # sgd only
    betas: Pair = (0.9, 0.999)  # adam and adamw only
    clip: float = Field(default=10.0, ge=0)  # largest gradient norm, 0 = any; lower it when the loss jumps


class ScheduleSection(Strict):
    name: Literal["cosine", "step", "constant"] = "cosine"  # cosine falls to `final` over the whole run
    warmup: float = Field(default=1.0, ge=0)  # epochs of linear warm-up
    final: float = Field(default=0.0, ge=0, le=1)  # cosine: the share of the learning rate that is left at the end
    every: float = Field(default=5.0, gt=0)  # step: epochs between two steps
    gamma: float = Field(default=0.5, gt=0, le=1)  # step: what is left of the learning rate after each


class TrainSection(Strict):
    epochs: int = Field(default=20, ge=1)  # fewer on small data: stop when validation recall falls
    fit_images: int = Field(default=512, ge=0)  # images to initialise from, at least (and fewer than twice); 0 = random
    classes_per_batch: int = Field(default=16, ge=1)  # P of P×K: more classes give more negatives
    images_per_class: int = Field(default=4, ge=1)  # K: pair losses need 2 or more
    chunk: int | None = Field(default=None, ge=1)  # images at once: less memory, the same loss, one more forward
    ema: float | None = Field(default=None, gt=0, lt=1)  # e.g. 0.999: validate and keep averaged weights
    seed: int = Field(default=0, ge=0)  # of batches, crops and random starts: repeat with others to see the spread
    precision: Literal["32", "bf16"] = "32"  # bf16 for GPUs that have it
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], NO_FIGURE] = "auto"  # a GPU where there is one
    checkpoint_every: Annotated[int | None, Field(ge=1), NO_FIGURE] = None  # steps; None = every epoch
    keep: Annotated[int, Field(ge=1), NO_FIGURE] = 2  # checkpoints that are kept
    log_every: Annotated[int, Field(ge=1), NO_FIGURE] = 10  # steps between two lines of metrics.jsonl
    tensorboard: Annotated[bool, NO_FIGURE] = False  # also write curves for TensorBoard (extra `tensorboard`)
    timeout: Annotated[float, Field(gt=0), NO_FIGURE] = 600.0  # seconds before processes give up on one that hangs


class ValidationSection(Strict):
    share: float = Field(default=0.5, ge=0, lt=1)  # of the classes, held out to choose by; 0 = none, keep the last
    fold: int = Field(default=0, ge=0)  # which classes are held out: 1 takes the next share of them
    seed: int = Field(default=0, ge=0)  # shuffles the classes once every fold has been used
    every: int = Field(default=1, ge=1)  # epochs
    at_start: bool = False  # validate before the first step too, and let training better it
    ks: Integers = (1, 2, 4, 8)  # the K of Recall@K
    metric: str = "recall@1"  # what best/ and early stopping look at: any figure, such as recall@4 or map@r
    patience: int | None = Field(default=None, ge=1)  # validations without improvement before stopping; None = never
    min_delta: float = Field(default=0.0, ge=0)  # what counts as an improvement

    @model_validator(mode="after")
    def _known_metric(self) -> ValidationSection:
        if not self.ks or min(self.ks) < 1:
            raise ConfigError(f"ks must be one or more numbers ≥ 1, got {list(self.ks)}")
        require_known("metric", self.metric, figure_names(self.ks))
        return self


class Recipe(Strict):
    """Every choice of a training run."""

    data: DataSection = DataSection()
    model: ModelConfig = ModelConfig()
    loss: LossSection = LossSection()
    optimizer: OptimizerSection = OptimizerSection()
    schedule: ScheduleSection = ScheduleSection()
    train: TrainSection = TrainSection()
    validation: ValidationSection = ValidationSection()

    @property
    def batch(self) -> int:
        """Images of one (global) batch."""
        return self.train.classes_per_batch * self.train.images_per_class


FREE_KEYS = free_keys(Recipe)
"""Dotted keys that no figure depends on."""
