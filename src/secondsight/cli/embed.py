"""``secondsight embed``: a set of images as vectors on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from secondsight import terminal
from secondsight.cli import options
from secondsight.cli.options import MISSING
from secondsight.cli.runtime import OPTION_HELP, check_runtime, chosen_runtime

if TYPE_CHECKING:
    from secondsight.inference import Runtime
    from secondsight.model import Embedder


def embed(
    model: str = typer.Argument(help="A saved model, a run directory, or the name of a backbone to use as it is."),
    data: str = typer.Argument(help="Images: a folder, a table, or NAME:PATH; labels are kept where there are any."),
    out: Path = typer.Option(
        ..., "-o", "--out", help="The directory to write: vectors.npy, items.csv, embedding.json."
    ),
    split: str = typer.Option("all", help="Which part of DATA: all, train, validation, test."),
    half: bool = typer.Option(False, "--half", help="Vectors in float16: half the bytes."),
    weights: str = typer.Option("default", help="Of a backbone: a file, 'default', or 'random'."),
    batch_size: int = typer.Option(64, min=1, help="Images at once."),
    workers: int = typer.Option(None, min=0, help="Decoding threads; default: chosen from the cores."),
    device: str = typer.Option(None, help="cpu, cuda …; default: cuda where there is one."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
    strict: bool = typer.Option(False, "--strict", help="A file that cannot be read is an error."),
    missing: str = MISSING,
) -> None:
    """Embed images: one unit vector each, in one file, with their paths beside it.

    [bold]secondsight embed runs/photos ./photos -o photos.vectors[/] writes vectors.npy, items.csv (path and label of
    every row) and embedding.json (which model made them). Stopped and started again, it continues.

    Several processes share the work and write the same: [bold]torchrun --nproc-per-node 2 -m secondsight embed …[/]
    """
    import torch

    from secondsight.data import open as open_images
    from secondsight.embed.directory import embed_to, finish
    from secondsight.model import open_model

    rank, world_size = options.place_among_processes()
    chosen = options.device(device)
    check_runtime(runtime)
    if world_size > 1:
        torch.distributed.init_process_group("gloo")
    options.check_order("embed", model, data)
    images = open_images(data, split=split, missing=options.missing(missing))
    embedder = open_model(model, weights=weights)
    embed_to(
        out,
        embedder,
        images,
        half=half,
        batch_size=batch_size,
        workers=workers,
        device=chosen,
        strict=strict,
        run=_same_runtime(embedder, runtime, device=chosen, beside=model, images=len(images)),
        rank=rank,
        world_size=world_size,
    )
    if world_size > 1:
        torch.distributed.barrier()
    if rank == 0:
        count, failures = finish(out, images, batch_size=batch_size)
        if embedder.origin is not None:
            embedder.origin.write(out)
        console = terminal.console(stderr=True, highlight=False)
        if failures:
            console.print(Text(failures.text(most=5), style="yellow"), soft_wrap=True)
            if loud := failures.warning(len(images)):
                terminal.warn(loud)
        console.print(
            Text(f"{count:,} vectors: {out / 'vectors.npy'}   their images: {out / 'items.csv'}"), soft_wrap=True
        )
    if world_size > 1:
        torch.distributed.destroy_process_group()


def _same_runtime(model: Embedder, name: str, **options: Any) -> Runtime | None:
    """As ``chosen_runtime``; of several processes the first one chooses, undisturbed, for all of them."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return chosen_runtime(model, name, **options)
    first = distributed.get_rank() == 0
    run = chosen_runtime(model, name, **options) if first else None
    names = ["torch" if run is None else run.name]
    distributed.broadcast_object_list(names)
    return run if first else chosen_runtime(model, names[0], say=False, **options)
