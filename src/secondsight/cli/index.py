"""``secondsight index``: a folder of pictures becomes a collection that can be searched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from secondsight.cli import options
from secondsight.cli.runtime import OPTION_HELP, check_runtime, use
from secondsight.cli.verb import command
from secondsight.errors import ConfigError, DataError, require_known
from secondsight.terminal import console as terminal
from secondsight.terminal import marked, named, warn

if TYPE_CHECKING:
    from secondsight.index import Growth, Index
    from secondsight.model import Embedder


def index(
    data: list[str] = typer.Argument(help="Folders, tables (CSV, Parquet) or NAME:PATH."),
    out: Path = typer.Option(None, "--out", "-o", help="Where the index goes; default: the folder's name + .index."),
    model: str = typer.Option(
        None,
        help="A saved model or run directory, or 'average' for the published network's features as they are. Default: "
        "JCF fitted to these very images, without labels.",
    ),
    backbone: str = typer.Option("efficientnet-lite0", help="Without a saved model: the published network."),
    weights: str = typer.Option("default", help="Of the network: a file, 'default', or 'random'."),
    size: int = typer.Option(
        None, min=16, help="Without a saved model: pixels a side; default: what suits the size of the pictures."
    ),
    fit_images: int = typer.Option(1024, min=8, help="How many pictures to fit the pooling to."),
    dtype: str = typer.Option("float16", help="How vectors are stored: float16 or float32."),
    memory: str = typer.Option(None, help="Memory for searching, such as 4GB; default: half of the machine's."),
    recall: float = typer.Option(
        None,
        min=0.0,
        max=1.0,
        help="Where search is approximate: the share of true neighbours to find on average.",
    ),
    structure: str = typer.Option(
        None, help="exact, ivf-sq8, bits, ivf-pq or hnsw; default: chosen by size and memory."
    ),
    parts: int = typer.Option(
        None, min=1, help="Vectors per picture, the whole and its parts, to find small things in it; 8 is good."
    ),
    engine: str = typer.Option(None, help="milvus://HOST:PORT/COLLECTION: search there instead of in this process."),
    labels: bool = typer.Option(
        None,
        "--labels/--no-labels",
        help="Whether subfolders are classes; default: yes, unless pictures lie beside them.",
    ),
    device: str = typer.Option(None, help="cpu, cuda …; default: cuda where there is one."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
) -> None:
    """Make a folder of pictures searchable. No labels and no training are needed.

    [bold]secondsight index ./photos[/] fits JCF to the pictures themselves, embeds them, and writes photos.index.
    [bold]secondsight index ./photos --model runs/birds/best -o birds.index[/] uses a model that you trained.
    [bold]secondsight index ./photos --parts 8[/] also finds small things in large pictures, and hits say where.

    The index holds a copy of the model. After an interruption, run the same command again and it continues;
    later, [bold]secondsight update[/] follows what changes on the disk.
    """
    console = terminal(highlight=False)
    target = out or Path(Path(data[0].rstrip("/").rpartition(":")[2]).name + ".index")
    import secondsight.index as room
    from secondsight import files
    from secondsight.index.catalogue import FILE
    from secondsight.index.engine import check_wish
    from secondsight.index.segments import DTYPES
    from secondsight.index.structures import parse_bytes

    # What can be wrong is known before the network has run for minutes.
    device = options.device(device)
    check_runtime(runtime)
    require_known("type of stored vectors", dtype, DTYPES)
    files.check_writable(target)
    wish = {
        "memory": parse_bytes(memory) if memory else None,
        "recall": recall,
        "structure": structure,
        "engine": engine,
    }
    check_wish(wish)
    for spec in data:
        if (Path(spec) / FILE).is_file():
            raise ConfigError(f"{spec} is an index already; to bring it up to date: {command('update', spec)}")
    if (target / FILE).exists():
        if model not in (None, "average"):
            raise ConfigError(
                f"{target} exists already and keeps its model; choose another place with -o, or leave out --model"
            )
        found = room.open(target, device=device)
        console.print(
            f"{marked(target)} is there already: {marked(_intent(found, data))} with its own model", soft_wrap=True
        )
    else:
        try:
            chosen, words = _model(data, model, backbone, weights, size, fit_images, device)
        except KeyboardInterrupt:
            console.print("stopped before anything was written; the same command begins again")
            raise
        console.print(f"model: {marked(words)}", soft_wrap=True)
        found = room.create(target, chosen, dtype=dtype, device=device, origin=words)
    if parts is not None:
        found.keep_parts(parts)
    use(found, runtime, images=_count(data) if runtime == "auto" else None)
    if any(value is not None for value in wish.values()):
        found.wish(**wish)
    try:
        for spec in data:
            _add(console, found, spec, labels)
    except KeyboardInterrupt:
        console.print(f"stopped at {len(found):,} pictures; the same command continues")
        raise
    say_engine(console, found)
    console.print(f"search it:  [bold cyan]{marked(command('search', target, 'QUERY.jpg'))}[/]", soft_wrap=True)
    console.print(f"on a page:  [bold cyan]{marked(command('serve', target, '--open'))}[/]", soft_wrap=True)


def _add(console: Console, found: Index, spec: str, labelled: bool | None) -> None:
    grown = found.add(spec, labelled=labelled)
    if grown.failures and not len(found):
        file, cause = next(iter(grown.failures.items()))
        raise DataError(f"{spec}: none of its {len(grown.failures):,} pictures can be read; {file}: {cause}")
    report(console, grown, found)


def _intent(found: Index, data: list[str]) -> str:
    """Said before it happens: a folder that was meant for an index of its own is about to join another's."""
    from secondsight.index import growth, scan

    held = {root.spec for root in growth.roots(found.store)}
    new = [spec for spec in data if scan.absolute(spec)[0] not in held]
    return (
        f"adding {' and '.join(new)} to the {len(found):,} pictures that it holds," if new else "bringing it up to date"
    )


def _model(
    data: list[str], name: str | None, backbone: str, weights: str, size: int | None, count: int, device: str
) -> tuple[Embedder, str]:
    if name not in (None, "average"):
        from secondsight.model import open_model

        return open_model(name, weights=weights), name
    from secondsight.data.imageset import ImageSet
    from secondsight.fit import default_pooling, fit_to, framing
    from secondsight.index import scan

    spec, kind = scan.absolute(data[0])
    root = scan.Root(-1, spec, kind, False)
    files = sorted(scan.walk(root).files)
    if not files:
        raise DataError(f"{data[0]}: no images here (looked for .jpg, .png, .webp and others, in every folder below)")
    images = ImageSet("images", Path(root.base), tuple(files))
    pooling = name or default_pooling(backbone)
    why = framing(images, backbone).why if pooling != "average" and size is None else ""
    seen: list[int] = []
    model = fit_to(
        images, pooling, backbone=backbone, weights=weights, size=size, count=count, device=device, tell=seen.append
    )
    words = [f"{backbone}, its features averaged as they are", "nothing fitted"]
    if seen:
        words = [f"{backbone} with {pooling} fitted to {seen[0]:,} of these pictures", "no labels, no training"]
    return model, "; ".join([*words, *([why] if why else [])])


def _count(data: list[str]) -> int:
    """How many pictures there are to embed, at most: for few it does not pay to look for the fastest runtime."""
    from secondsight.index import scan

    return sum(len(scan.walk(scan.Root(-1, *scan.absolute(spec), False)).files) for spec in data)


def report(console: Console, growth: Growth, index: Index) -> None:
    """What was done, what was left out, and what to do next."""
    from secondsight.data.loading.failures import MANY

    kept = index.parts
    numbers = f"{index.dim} numbers" if kept is None else f"up to {kept.count} × {index.dim} numbers (whole and parts)"
    console.print(f"{marked(index.path)}: {growth.text()}; {len(index):,} pictures, {numbers} each", soft_wrap=True)
    for file, cause in list(growth.failures.items())[:5]:
        console.print(f"  set aside: {named(file)}: {marked(cause)}", style="yellow", soft_wrap=True)
    if len(growth.failures) > 5:
        rest = f"… and {len(growth.failures) - 5:,} more: secondsight info {marked(index.path)}"
        console.print(f"  {rest}", style="yellow", soft_wrap=True)
    seen = len(index) + len(growth.failures)
    if len(growth.failures) > MANY * seen:
        warn(
            f"WARNING: {len(growth.failures):,} of {seen:,} pictures could not be used and cannot be found by a search"
        )
    for folder in growth.unlisted:
        console.print(f"  cannot be listed, kept as it was: {named(folder)}", style="yellow", soft_wrap=True)


def say_engine(console: Console, index: Index) -> None:
    """What answers searches, why, and how good it is."""
    engine = index.info()["engine"]
    if engine["structure"] == "exact":
        console.print("searches compare every vector: exact")
        return
    recall = engine["recall"]
    if engine["structure"] == "milvus":
        console.print(f"searches: {marked(engine['address'])}, {engine['factory']}", soft_wrap=True)
        return
    console.print(f"searches: {engine['structure']} ({engine['factory']}): {engine['reason']}", soft_wrap=True)
    console.print(
        f"recall@{recall['k']} on {recall['queries']} vectors kept apart: {recall['mean']:.3f} on average, "
        f"{recall['worst percentile']:.2f} in the worst percentile (asked for: {recall['goal']})"
        f"{_on_labels(engine)}",
        soft_wrap=True,
    )


def _on_labels(engine: dict) -> str:
    found = engine.get("recall@1 on labels")
    return f"; Recall@1 on your labels {found['engine']:.3f}, by every vector {found['exact']:.3f}" if found else ""
