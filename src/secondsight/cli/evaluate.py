"""``secondsight evaluate``: how good an embedding is, on which classes it fails, and what its errors look like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from secondsight import terminal
from secondsight.cli import options
from secondsight.cli.options import MISSING
from secondsight.cli.runtime import OPTION_HELP, check_runtime, chosen_runtime
from secondsight.errors import ConfigError, require_known

if TYPE_CHECKING:
    from secondsight.data import ImageSet
    from secondsight.evaluate import Evaluation, Items
    from secondsight.evaluate.held_out import EvaluationSet
    from secondsight.model import Embedder


def evaluate(
    model: str = typer.Argument(
        help="A saved model or run directory, saved embeddings (.npy), or the name of a backbone to use as it is."
    ),
    data: str = typer.Argument(
        None,
        help="Images: a folder with one subfolder per class, a table, or NAME:PATH. Optional with .npy and --labels.",
    ),
    split: str = typer.Option(
        None,
        help="Which part of DATA: all, train, validation, test. Default: the classes that did not teach the model.",
    ),
    labels: Path = typer.Option(None, help="With .npy: the labels, as .npy or as text with one a line."),
    ks: str = typer.Option("1,2,4,8", help="The K of Recall@K; for SOP: 1,10,100,1000."),
    metric: str = typer.Option("cosine", help="cosine, dot or euclidean."),
    nmi: bool = typer.Option(False, "--nmi", help="Also cluster the embeddings and compare with the classes; slow."),
    bootstrap: int = typer.Option(1000, min=0, help="Bootstrap resamples for the intervals; 0 for no intervals."),
    resample: str = typer.Option("queries", help="What the intervals resample: queries or classes."),
    seed: int = typer.Option(0, min=0, help="Random seed for the resampling and the clustering."),
    weights: str = typer.Option("default", help="Of a backbone: a file, 'default', or 'random'."),
    transform: str = typer.Option(
        None, help="resize (to a square) or resize-crop (its centre); default: the model's own."
    ),
    size: int = typer.Option(None, min=1, max=1 << 14, help="Pixels of the images' sides; default: the model's own."),
    mirror: bool = typer.Option(
        None,
        "--mirror/--no-mirror",
        help="Embed each image together with its mirror image, in twice the time; default: as the model was saved.",
    ),
    batch_size: int = typer.Option(64, min=1, help="Images at once."),
    device: str = typer.Option(None, help="cpu, cuda …; default: cuda where there is one."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
    min_images: int = typer.Option(1, min=1, help="Leave out classes with fewer images."),
    strict: bool = typer.Option(False, "--strict", help="A file that cannot be read is an error."),
    missing: str = MISSING,
    out: Path = typer.Option(None, "--out", "-o", help="Where the report goes; default: runs/evaluate-MODEL-DATA."),
    save: bool = typer.Option(False, "--save", help="Also keep embeddings.npy and labels.txt, to evaluate them again."),
    rerank: list[str] = typer.Option(
        None, help="Also measure what re-ranking gains: alpha-qe, dba or k-reciprocal; may be repeated."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print report.json instead of the table."),
) -> None:
    """Evaluate a model: does each image find others of its class?

    [bold]secondsight evaluate runs/photos ./photos[/] embeds the images, prints Recall@K, MAP@R, R-precision and MRR
    with their intervals, and writes report.json and report.html (a page with curves, classes and pictures). Classes
    that taught the model are left out, unless --split asks for them; the figures then come with a warning.

    [bold]secondsight evaluate efficientnet-lite0 ./photos[/] shows what a published network does without any training.
    [bold]secondsight evaluate vectors.npy --labels labels.txt[/] needs no images.

    A query never finds itself, ties count against it, and queries without another image of their class are left out
    and counted.
    """
    from secondsight import files
    from secondsight.data.loading.transforms import TRANSFORMS
    from secondsight.evaluate import Evaluation
    from secondsight.evaluate.bootstrap import RESAMPLE
    from secondsight.evaluate.retrieval_arguments import as_ks
    from secondsight.evaluate.scoring import METRICS
    from secondsight.index.rerank import METHODS

    wanted, chosen = as_ks(options.numbers(ks, "--ks")), options.device(device)
    require_known("metric", metric, METRICS)
    require_known("resample", resample, RESAMPLE)
    for method in rerank or []:
        require_known("re-ranking", method, METHODS)
    if transform is not None:
        require_known("transform", transform, TRANSFORMS)
    check_runtime(runtime)
    target = out or Path("runs") / _run_name(model, data)
    files.check_writable(target)
    if model.endswith(".npy"):
        items, warnings, facts = _from_files(Path(model), labels, data, split, min_images, missing)
        note, origin = "", None
    else:
        if labels is not None:
            raise ConfigError("--labels belongs to saved embeddings (.npy); images bring their own: folders or a table")
        if data is None:
            raise ConfigError(f"{model}: give the images to evaluate it on: secondsight evaluate {model} DATA")
        options.check_order("evaluate", model, data)
        embedder = _model(model, weights, transform=transform, size=size, mirror=mirror)
        choice = _choice(embedder, data, split, min_images, missing)
        note, warnings, origin = choice.note, choice.warnings, embedder.origin
        items = _embedded(embedder, choice.images, runtime, batch_size=batch_size, device=chosen, strict=strict)
        facts = {
            "model": f"{embedder.backbone.name}, {embedder.config.pooling}, {embedder.dim} numbers per image",
            "fingerprint": embedder.fingerprint()[:16],
            "transform": embedder.transform.key + ", with mirror images" * embedder.config.mirror,
        }
    evaluation = Evaluation.of(
        items,
        facts={"name": model, "data": f"{data or labels}", "split": split or "held out", **facts},
        warnings=warnings,
        ks=wanted,
        metric=metric,
        nmi=nmi,
        bootstrap=bootstrap,
        resample=resample,
        seed=seed,
    )
    evaluation.write(target, title=f"{_short(model)} on {_short(data) if data else labels}", save=save)
    if save and origin is not None:
        origin.write(target)
    if as_json:
        typer.echo(evaluation.to_json())
    else:
        terminal.console().print(evaluation.report)
    if rerank:
        _say_gains(items, rerank)
    _say(evaluation, note, target)


def _say_gains(items: Items, methods: list[str]) -> None:
    """What each re-ranking brings on these labels; a line each, on standard error."""
    import numpy as np

    from secondsight.index.rerank import gain

    vectors = np.asarray(items.vectors, np.float32)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    codes = np.unique(items.labels, return_inverse=True)[1]
    console = terminal.console(stderr=True)
    for method in methods:
        found = gain(vectors, codes, method)
        change = [f"{100 * before:.1f} → {100 * after:.1f}" for before, after in (found.recall, found.map_at_r)]
        advice = "it helps here" if found.helps else "leave it off here"
        console.print(f"{method}: Recall@1 {change[0]}, MAP@R {change[1]}: {advice}")


def _from_files(vectors: Path, labels: Path | None, data: str | None, split: str | None, min_images: int, missing: str):
    """Saved embeddings, a warning where their model had learned from their classes, and what they are."""
    from secondsight.evaluate import Items
    from secondsight.evaluate.held_out import doubt
    from secondsight.model import origin

    images = None if data is None else _open(data, split or "all", min_images, missing)
    items = Items.of_files(vectors, labels, images)
    size = " × ".join(f"{n:,}" for n in items.vectors.shape)
    warnings = doubt(sorted(set(map(str, items.labels))), origin.read(vectors.parent))
    return items, warnings, {"embeddings": f"{vectors} {size}"}


def _model(name: str, weights: str, **changes: object) -> Embedder:
    """The model, with another transform where that is asked for."""
    from secondsight.model import open_model

    model = open_model(name, weights=weights)
    given = {key: value for key, value in changes.items() if value is not None}
    model.config = model.config.model_copy(update=given)
    return model


def _choice(model: Embedder, data: str, split: str | None, min_images: int, missing: str) -> EvaluationSet:
    from secondsight.evaluate.held_out import doubted, held_out

    if split is None or (split == "validation" and model.origin is not None and model.origin.chosen_on):
        choice = held_out(_open(data, "all", min_images, missing), model.origin)
    else:
        choice = doubted(_open(data, split, min_images, missing), model.origin)
    choice.images.require_labels()
    return choice


def _embedded(model: Embedder, images: ImageSet, runtime: str, *, batch_size: int, device: str, strict: bool) -> Items:
    from secondsight.embed import embed
    from secondsight.evaluate import Items

    # Kept in the user's cache: --size and --mirror make another model of the one in the directory.
    run = chosen_runtime(model, runtime, device=device, images=len(images))
    return Items.of_images(images, embed(model, images, batch_size=batch_size, device=device, strict=strict, run=run))


def _open(data: str, split: str, min_images: int, missing: str) -> ImageSet:
    from secondsight.data import open as open_images

    return open_images(data, split=split, min_images=min_images, missing=options.missing(missing))


def _run_name(model: str, data: str | None) -> str:
    """A file name from the last words of both. An index keeps its ending: beside it may be a run of that name.

    >>> _run_name("runs/birds/best", "photos/"), _run_name("birds.index", "list.csv")
    ('evaluate-birds-photos', 'evaluate-birds.index-list')
    """
    ending = Path(model.rstrip("/")).suffix
    name = _short(model) + (ending if ending in (".index", ".onnx") else "")
    return "-".join(["evaluate", name, *([_short(data)] if data else [])])


def _short(text: str) -> str:
    path = Path(text.rstrip("/"))
    name = path.parent.name if path.name == "best" and path.parent.name else path.stem if path.suffix else path.name
    return name.replace(":", "-") or "model"


def _say(evaluation: Evaluation, note: str, target: Path) -> None:
    console = terminal.console(stderr=True, highlight=False)
    if note:
        console.print(Text(note), soft_wrap=True)
    for warning in evaluation.warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), soft_wrap=True)
    if evaluation.items.failures:
        console.print(Text(evaluation.items.failures.text(most=5), style="yellow"), soft_wrap=True)
        console.print(Text(f"all of them: {target / 'failures.jsonl'}"), soft_wrap=True)
        if loud := evaluation.items.failures.warning(len(evaluation.items.labels) + len(evaluation.items.failures)):
            terminal.warn(loud)
    console.print(Text(f"report: {target / 'report.html'}   figures: {target / 'report.json'}"), soft_wrap=True)
