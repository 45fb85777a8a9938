"""``secondsight evaluate``: how good an embedding is, on which classes it fails, and what its errors look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from secondsight.cli.judged import Judged
    from secondsight.data import ImageSet
    from secondsight.evaluate import Report


def evaluate(
    model: str = typer.Argument(
        help="A saved model or run directory, saved embeddings (.npy), or the name of a backbone to use as it is."
    ),
    data: str = typer.Argument(
        None,
        help="Images: a folder with one subfolder per class, a table, or NAME:PATH. Optional with .npy and --labels.",
    ),
    split: str = typer.Option("all", help="Which part of DATA: all, train, validation, test."),
    labels: Path = typer.Option(None, help="With .npy: the labels, as .npy or as text with one a line."),
    ks: str = typer.Option("1,2,4,8", help="The K of Recall@K; for SOP: 1,10,100,1000."),
    metric: str = typer.Option("cosine", help="cosine, dot or euclidean."),
    nmi: bool = typer.Option(False, "--nmi", help="Also cluster the embeddings and compare with the classes; slow."),
    bootstrap: int = typer.Option(1000, min=0, help="Resamples behind the intervals; 0 for none."),
    resample: str = typer.Option("queries", help="What the intervals draw again: queries or classes."),
    seed: int = typer.Option(0, help="Of the resampling and the clustering."),
    weights: str = typer.Option("default", help="Of a backbone: a file, 'default', or 'random'."),
    transform: str = typer.Option(
        None, help="resize (to a square) or resize-crop (its centre); default: the model's own."
    ),
    size: int = typer.Option(None, min=1, help="Pixels of the images' sides; default: the model's own."),
    mirror: bool = typer.Option(
        None,
        "--mirror/--no-mirror",
        help="Embed each image together with its mirror image, in twice the time; default: the model's own way.",
    ),
    batch_size: int = typer.Option(64, min=1, help="Images at once."),
    device: str = typer.Option(None, help="cpu, cuda …; default: cuda where there is one."),
    min_images: int = typer.Option(1, min=1, help="Leave out classes with fewer images."),
    strict: bool = typer.Option(False, "--strict", help="A file that cannot be read is an error."),
    out: Path = typer.Option(None, help="Where the report goes; default: runs/evaluate-MODEL-DATA."),
    save: bool = typer.Option(False, "--save", help="Also keep embeddings.npy and labels.txt, to judge them again."),
    as_json: bool = typer.Option(False, "--json", help="Print report.json instead of the table."),
) -> None:
    """Judge an embedding by retrieval: every image asks for others of its class.

    [bold]secondsight evaluate runs/birds photos/[/] embeds the images, prints Recall@K, MAP@R, R-precision and MRR with
    their intervals, and writes report.json and report.html (a page with curves, classes and pictures).

    [bold]secondsight evaluate efficientnet-lite0 photos/[/] shows what a published network does without any training.
    [bold]secondsight evaluate vectors.npy --labels labels.txt[/] needs no images.

    A query never finds itself, ties count against it, and queries without another image of their class are left out
    and counted.
    """
    wanted = _numbers(ks)
    images = None if data is None else _open(data, split, min_images)
    judged = _judged(
        model,
        images,
        labels,
        weights,
        transform=transform,
        size=size,
        mirror=mirror,
        batch_size=batch_size,
        device=device,
        strict=strict,
    )
    from secondsight.evaluate import retrieval

    report = retrieval(
        judged.vectors,
        judged.labels,
        ks=wanted,
        metric=metric,  # pyright: ignore[reportArgumentType] retrieval checks it
        nmi=nmi,
        bootstrap=bootstrap,
        resample=resample,  # pyright: ignore[reportArgumentType]
        seed=seed,
    )
    target = out or Path("runs") / _run_name(model, data)
    facts = {"model": model, "data": f"{data or labels} ({split})", **judged.facts}
    written = write(judged, report, target, title=_title(model, data, labels), facts=facts, save=save)
    if as_json:
        typer.echo(written)
    else:
        Console().print(report)
    _say(judged, target)


def write(judged: Judged, report: Report, target: Path, *, title: str, facts: dict[str, str], save: bool) -> str:
    """Write ``report.json``, ``report.html`` and what belongs to them into ``target``; gives the JSON."""
    import numpy as np

    from secondsight import files
    from secondsight.evaluate.examples import confusions, instructive
    from secondsight.evaluate.page import page
    from secondsight.evaluate.survey import survey
    from secondsight.version import __version__

    facts = {**facts, "secondsight": __version__}
    bad = 0 if judged.failures is None else len(judged.failures)
    content: dict[str, Any] = {**facts, "items": len(judged.labels), "failures": bad, **report.to_dict()}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    files.write_text(target / "report.json", text)
    if judged.failures:
        judged.failures.write(target / "failures.jsonl")
    if save:
        with files.replacing(target / "embeddings.npy") as temporary, temporary.open("wb") as handle:
            np.save(handle, judged.vectors, allow_pickle=False)
        files.write_text(target / "labels.txt", "".join(f"{label}\n" for label in judged.labels))
    looked = survey(judged.vectors, judged.labels, report)
    html = page(
        report,
        looked,
        title=title,
        examples=instructive(judged.vectors, judged.labels, report, looked),
        confusions=confusions(judged.labels, report, looked),
        picture=judged.picture,
        name=judged.name,
        facts=facts,
        warnings=(f"Not part of the figures: {bad:,} unreadable file(s), listed in failures.jsonl.",) * (bad > 0),
    )
    files.write_text(target / "report.html", html)
    return text


def _judged(
    model: str, images: ImageSet | None, labels: Path | None, weights: str, *, device: str | None, **options: Any
) -> Judged:
    from secondsight.cli.judged import find_model, from_files, from_model

    if model.endswith(".npy"):
        return from_files(Path(model), labels, images)
    if labels is not None:
        raise ConfigError("--labels belongs to saved embeddings (.npy); images bring their own: folders or a table")
    if images is None:
        raise ConfigError(f"{model}: give the images to judge it on: secondsight evaluate {model} DATA")
    import torch

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return from_model(find_model(model, weights=weights), images, device=chosen, **options)


def _open(data: str, split: str, min_images: int) -> ImageSet:
    from secondsight.data import open as open_images

    return open_images(data, split=split, min_images=min_images)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.replace(" ", "").split(","))
    except ValueError:
        raise ConfigError(f"--ks {text!r}: whole numbers with commas between them, such as 1,2,4,8") from None


def _run_name(model: str, data: str | None) -> str:
    """A file name from the last words of both: runs/birds/best and photos/ give evaluate-birds-photos."""
    return "-".join(["evaluate", _short(model), *([_short(data)] if data else [])])


def _title(model: str, data: str | None, labels: Path | None) -> str:
    return f"{_short(model)} on {_short(data) if data else labels}"


def _short(text: str) -> str:
    path = Path(text.rstrip("/"))
    name = path.parent.name if path.name == "best" and path.parent.name else path.stem if path.suffix else path.name
    return name.replace(":", "-") or "model"


def _say(judged: Judged, target: Path) -> None:
    console = Console(stderr=True, highlight=False)
    if judged.failures:
        console.print(judged.failures.text(most=5), markup=False, style="yellow", soft_wrap=True)
        console.print(f"all of them: {target / 'failures.jsonl'}", soft_wrap=True)
    console.print(f"report: {target / 'report.html'}   figures: {target / 'report.json'}", soft_wrap=True)
