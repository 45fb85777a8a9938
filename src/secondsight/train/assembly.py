"""From a recipe to everything a run needs: the one place where names become parts."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from torch.nn.modules.batchnorm import _BatchNorm

from secondsight import losses
from secondsight.data import transforms
from secondsight.data.samplers import BatchSampler
from secondsight.errors import ConfigError
from secondsight.losses import Loss
from secondsight.model import Embedder
from secondsight.train import optimisers
from secondsight.train.ema import EMA
from secondsight.train.feeding import Feed, ImageFeed
from secondsight.train.recipe import Recipe
from secondsight.train.sets import Sets, open_sets, sampler
from secondsight.train.step import Network, seed_everything


@dataclass
class Parts:
    """A run, ready to go."""

    recipe: Recipe
    fabric: Fabric
    sets: Sets
    model: Embedder
    loss: Loss
    network: Network  # wrapped by fabric
    optimizer: torch.optim.Optimizer
    sampler: BatchSampler
    feed: Feed
    plain: Feed  # the training images as evaluation sees them
    validation: Feed | None
    ema: EMA | None

    @property
    def steps_per_epoch(self) -> int:
        return len(self.sampler)

    @property
    def total(self) -> int:
        return self.steps_per_epoch * self.recipe.train.epochs


def make_fabric(recipe: Recipe) -> Fabric:
    """One process, or the process that torchrun started."""
    from lightning_fabric.strategies import DDPStrategy

    processes, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = recipe.train.device
    precision = {"32": "32-true", "bf16": "bf16-mixed"}[recipe.train.precision]
    if processes == 1:
        fabric = Fabric(accelerator=device, devices=1, precision=precision)  # pyright: ignore[reportArgumentType]
    else:
        strategy = DDPStrategy(
            timeout=datetime.timedelta(seconds=recipe.train.timeout),
            broadcast_buffers=not recipe.model.freeze_norm,
        )
        fabric = Fabric(
            accelerator=device,
            devices=local,
            num_nodes=processes // local,
            strategy=strategy,
            precision=precision,  # pyright: ignore[reportArgumentType]
        )
    fabric.launch()
    return fabric


def build_model(recipe: Recipe, classes: int) -> tuple[Embedder, Loss]:
    """The embedder and the loss. An ensemble's loss says how its parts are normalised, so it comes first."""
    m = recipe.model
    seed_everything(recipe.train.seed)
    loss = losses.build(recipe.loss.name, dim=m.dim, classes=classes, **recipe.loss.options)
    model = Embedder.build(
        backbone=m.backbone,
        pooling=m.pooling,
        dim=m.dim,
        weights=m.weights,
        freeze=m.freeze,
        reduce=m.reduce or None,
        norm_exponent=m.norm_exponent,
        learn_exponent=m.learn_exponent,
        normalise=tuple(part.size for part in loss.parts),
        backbone_options={**m.backbone_options, "freeze_norm": m.freeze_norm},
        pooling_options=m.pooling_options,
    )
    if recipe.train.chunk is not None and _live_norms(model):
        raise ConfigError(
            "train.chunk runs every chunk twice, which BatchNorm would count twice: set model.freeze_norm = true"
        )
    return model, loss


def _live_norms(model: Embedder) -> bool:
    model.train()
    return any(isinstance(module, _BatchNorm) and module.training for module in model.modules())


def assemble(recipe: Recipe, fabric: Fabric, *, fit: bool) -> Parts:
    """Build everything; with ``fit`` the reduction and the pooling are initialised from the training images."""
    sets = open_sets(recipe)
    if recipe.batch % fabric.world_size or recipe.train.classes_per_batch % fabric.world_size:
        raise ConfigError(
            f"{recipe.train.classes_per_batch} classes per batch cannot be shared by {fabric.world_size} processes; make "
            "train.classes_per_batch a multiple of the number of processes"
        )
    model, loss = build_model(recipe, len(sets.train.classes))
    size = recipe.data.size or model.backbone.preprocessing.size
    transform = transforms.build(recipe.data.transform, size)
    plain = (
        transform if transform.deterministic else transforms.build(recipe.data.eval_transform or "resize-crop", size)
    )
    if recipe.data.eval_transform:
        plain = transforms.build(recipe.data.eval_transform, size)

    def feed(images, transform):
        return ImageFeed(images, transform, seed=recipe.train.seed, workers=recipe.data.workers)

    feeds = feed(sets.train, transform), feed(sets.train, plain)
    if fit and recipe.model.fit_images:
        _fit(model, feeds[1], recipe)
    optimizer = optimisers.build(model, loss, recipe.optimizer)
    network = Network(model, cached=False, size=(size, size))
    wrapped, optimizer = fabric.setup(network, optimizer)
    loss.to(fabric.device)
    if fabric.world_size > 1:
        loss.load_state_dict(fabric.broadcast(loss.state_dict()))
    return Parts(
        recipe=recipe,
        fabric=fabric,
        sets=sets,
        model=model,
        loss=loss,
        network=wrapped,  # pyright: ignore[reportArgumentType]
        optimizer=optimizer,  # pyright: ignore[reportArgumentType]
        sampler=sampler(sets.train, loss, recipe, rank=fabric.global_rank, world_size=fabric.world_size),
        feed=feeds[0],
        plain=feeds[1],
        validation=None if sets.validation is None else feed(sets.validation, plain),
        ema=None if recipe.train.ema is None else EMA(model, recipe.train.ema),
    )


def _fit(model: Embedder, feed: Feed, recipe: Recipe) -> None:
    """Initialise from a sample of the training images, spread over all of them."""
    n = min(recipe.model.fit_images, len(feed))
    chosen = np.linspace(0, len(feed) - 1, n).round().astype(np.int64)
    plan = [chosen[i : i + 32] for i in range(0, n, 32)]
    model.fit(feed.batches(plan, epoch=0), seed=recipe.train.seed)
