"""One process or many: the same loss, the same gradients, the same weights."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import secondsight
import train_tiny
from secondsight import losses
from secondsight.model import Embedder
from secondsight.train import checkpoint
from secondsight.train.assembly import make_fabric
from secondsight.train.run_directory import read_metrics
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
        del network  # DDP goes before its group
        gc.collect()
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
    arguments = [(rank, world, port, str(tmp_path)) for rank in range(world)]
    children = [context.Process(target=gradients, args=a, daemon=True) for a in arguments]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
        assert child.exitcode == 0
    for rank in range(world):
        assert_same(load_file(tmp_path / f"{world}-{rank}.safetensors"), alone)


def test_chunks_give_the_loss_and_the_gradients_of_the_whole_batch(alone, tmp_path):
    gradients(0, 1, 0, str(tmp_path), chunk=3)
    assert_same(load_file(tmp_path / "1-0.safetensors"), alone)


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


def start(world: int, digits: Path, out: Path, *overrides: str) -> list:
    context, port = train_tiny.processes(), train_tiny.free_port()
    arguments = [(rank, world, port, str(digits), str(out), overrides) for rank in range(world)]
    children = [context.Process(target=train_tiny.train_as, args=a, daemon=True) for a in arguments]
    for child in children:
        child.start()
    return children


@pytest.mark.parametrize("loss", ["proxy-anchor", "htl"])
def test_a_run_of_two_processes_is_the_run_of_one(loss, digits, tmp_path):
    """Weights after 15 steps, proxies, validation figures and metrics."""
    for world in (1, 2):
        for child in start(world, digits, tmp_path / str(world), f"loss.name={loss}", "train.ema=0.9"):
            child.join(300)
            assert child.exitcode == 0
    one, two = (load_file(checkpoint.listing(tmp_path / w / "checkpoints")[0] / checkpoint.TENSORS) for w in ("1", "2"))
    assert one.keys() == two.keys()
    for name in one:
        assert torch.allclose(one[name].float(), two[name].float(), atol=1e-3, rtol=1e-3), name
    rows = [read_metrics(tmp_path / world / "metrics.jsonl") for world in ("1", "2")]
    assert [(r["kind"], r["step"]) for r in rows[0]] == [(r["kind"], r["step"]) for r in rows[1]]
    figures = [[r["recall@1"] for r in some if r["kind"] == "validation"] for some in rows]
    assert figures[0] == pytest.approx(figures[1], abs=0.051)  # 40 images: two of them may change sides


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_process_that_dies_or_hangs_ends_the_run_with_a_message(harm, digits, tmp_path):
    out = tmp_path / "run"
    children = start(2, digits, out, "train.epochs=5000", "train.timeout=10.0")
    while not read_metrics(out / "metrics.jsonl"):
        assert all(child.is_alive() for child in children)
        time.sleep(0.01)
    os.kill(children[1].pid, harm)
    children[0].join(300)
    children[1].kill()
    assert children[0].exitcode == 1
    said = Path(f"{out}.0").read_text()
    assert "lost the others at step" in said
    assert "--resume" in said


def test_processes_that_cannot_share_a_batch_say_so(digits, tmp_path):
    children = start(2, digits, tmp_path / "run", "train.classes_per_batch=3")
    for child in children:
        child.join(300)
        assert child.exitcode == 1
    assert "multiple of the number of processes" in Path(f"{tmp_path / 'run'}.0").read_text()


def test_torchrun_trains_from_the_command_line(digits, tmp_path):
    """The whole way a user goes: torchrun, the command line, a shipped recipe, a pretrained backbone."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    command += [
        str(train_tiny.free_port()),
        "-m",
        "secondsight",
        "train",
        "photos",
        "--data",
        str(digits),
        "--out",
        str(out),
    ]
    small = [
        "model.size=32",
        "train.epochs=1",
        "train.classes_per_batch=4",
        "train.images_per_class=2",
        "validation.share=0.5",
    ]
    for word in [*small, "model.dim=32", "model.reduce=32", "model.pooling=jcf-4-2", "train.fit_images=20"]:
        command += ["--set", word]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert secondsight.load(out / "best").dim == 32
    assert done.stderr.count("best recall@1 on the held-out classes") == 1  # one process speaks
