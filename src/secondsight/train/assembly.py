"""From a recipe to everything a run needs: the one place where names become parts."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch.nn.modules.batchnorm import _BatchNorm

from secondsight import losses
from secondsight.data.loading.samplers import BatchSampler
from secondsight.errors import ConfigError
from secondsight.losses import Loss
from secondsight.model import Embedder
from secondsight.train import optimisers, run_inputs
from secondsight.train.ema import EMA
from secondsight.train.recipe import Recipe
from secondsight.train.run_inputs import RunInputs
from secondsight.train.sets import Sets, open_sets, sampler
from secondsight.train.step import Network, seed_everything


@dataclass
class RunParts:
    """A run, ready to go."""

    recipe: Recipe
    fabric: Fabric
    sets: Sets
    model: Embedder
    loss: Loss
    network: Network  # wrapped by fabric
    optimizer: torch.optim.Optimizer
    sampler: BatchSampler
    inputs: RunInputs
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
        # Fabric's own choice of function, which is right; nothing that a user could act on.
        warnings.filterwarnings("ignore", message="torch.distributed.nn.functional.all_gather is deprecated")
        strategy = DDPStrategy(timeout=datetime.timedelta(seconds=recipe.train.timeout))
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
    parts = tuple((part.size, part.scale) for part in loss.parts)
    changes = {"transform": run_inputs.eval_transform_name(recipe), "normalise": parts or m.normalise}
    model = Embedder.from_config(m.model_copy(update=changes))
    if recipe.train.chunk is not None and _live_norms(model):
        raise ConfigError(
            "train.chunk runs every chunk twice, which BatchNorm would count twice: set model.freeze_norm = true"
        )
    return model, loss


def _live_norms(model: Embedder) -> bool:
    model.train()
    return any(isinstance(module, _BatchNorm) and module.training for module in model.modules())


def assemble(
    recipe: Recipe, fabric: Fabric, *, fit: bool, say: Callable[[str], None], sets: Sets | None = None
) -> RunParts:
    """Build everything; with ``fit`` the reduction and the pooling are initialised from the training images.

    ``sets`` takes the place of the images that the recipe names.
    """
    sets = open_sets(recipe) if sets is None else sets
    if recipe.batch % fabric.world_size or recipe.train.classes_per_batch % fabric.world_size:
        raise ConfigError(
            f"{recipe.train.classes_per_batch} classes per batch cannot be shared by {fabric.world_size} processes; "
            "make train.classes_per_batch a multiple of the number of processes"
        )
    model, loss = build_model(recipe, len(sets.train.classes))
    made = run_inputs.build(recipe, sets, model, device=fabric.device, say=say)
    if fit and recipe.train.fit_images:
        run_inputs.fit(model, made, recipe, device=fabric.device)
    optimizer = optimisers.build(model, loss, recipe.optimizer)
    for words in optimisers.doubts(model, optimizer, recipe.optimizer):
        say(f"warning: {words}")
    network = Network(model, cached=made.cached, size=made.size)
    wrapped, optimizer = fabric.setup(network, optimizer)
    loss.to(fabric.device)
    if fabric.world_size > 1:
        loss.load_state_dict(fabric.broadcast(loss.state_dict()))
    return RunParts(
        recipe=recipe,
        fabric=fabric,
        sets=sets,
        model=model,
        loss=loss,
        network=wrapped,  # pyright: ignore[reportArgumentType]
        optimizer=optimizer,  # pyright: ignore[reportArgumentType]
        sampler=sampler(sets.train, loss, recipe, rank=fabric.global_rank, world_size=fabric.world_size),
        inputs=made,
        ema=None if recipe.train.ema is None else EMA(model, recipe.train.ema),
    )
