"""One process or many: the same loss, the same gradients, the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import train_tiny
from secondsight import losses
from secondsight.model import Embedder
from secondsight.train.assembly import make_fabric
from secondsight.train.step import Network, forward_backward

LOSSES = (
    "triplet",
    "contrastive",
    "multi-similarity",
    "margin",
    "smooth-ap",
    "proxy-anchor",
    "proxy-nca",
    "bier",
    "hdc",
)


def gradients(rank: int, world: int, port: int, out: str, chunk: int | None = None) -> None:
    """Loss and gradients of one fixed global batch with every loss; each rank writes what it has."""
    if world > 1:
        train_tiny.enter(rank, world, port)
    fabric = make_fabric(train_tiny.recipe(Path(out)))
    images = torch.randint(256, (16, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(16) // 4
    found = {}
    for name in LOSSES:
        torch.manual_seed(0)
        model = Embedder.build(backbone="tiny", weights=None, pooling="jcf-4-2", dim=24, reduce=16)
        model.backbone.freeze(None, norm=True)
        loss = losses.build(name, dim=24, classes=4)
        network = fabric.setup(Network(model, cached=False, size=(16, 16)))
        share = 16 // world
        mine = images[rank * share : (rank + 1) * share].split(chunk or share)
        outcome = forward_backward(fabric, network, loss, mine, labels, seed=(0, 0))
        found[f"{name}/loss"] = torch.tensor(outcome.loss)
        found |= {f"{name}/{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
        found |= {f"{name}/loss.{key}": p.grad for key, p in loss.named_parameters() if p.grad is not None}
    save_file({key: tensor.contiguous() for key, tensor in found.items()}, Path(out) / f"{world}-{rank}.safetensors")
    if world > 1:
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("alone")
    gradients(0, 1, 0, str(folder))
    return load_file(folder / "1-0.safetensors")


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        scale = max(1.0, float(tensor.abs().max()))
        assert float((found[key] - tensor).abs().max()) < 1e-5 * scale, key


@pytest.mark.parametrize("world", [2, 4])
def test_losses_and_gradients_of_many_processes_are_those_of_one(world, alone, tmp_path):
    context, port = train_tiny.processes(), train_tiny.free_port()
    children = [context.Process(target=gradients, args=(r, world, port, str(tmp_path))) for r in range(world)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    for rank in range(world):
        assert_same(load_file(tmp_path / f"{world}-{rank}.safetensors"), alone)


def test_chunks_give_the_loss_and_the_gradients_of_the_whole_batch(alone, tmp_path):
    gradients(0, 1, 0, str(tmp_path), chunk=3)
    assert_same(load_file(tmp_path / "1-0.safetensors"), alone)
