"""``secondsight data``: list, download, check and describe datasets."""

from __future__ import annotations

import datetime
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from secondsight.cli.help_page import VerbGroup
from secondsight.cli.verb import verb
from secondsight.errors import ConfigError
from secondsight.terminal import console, marked, print_json

if TYPE_CHECKING:
    from secondsight.data.readers.registry import Dataset
    from secondsight.data.statistics import Spread, Stats
    from secondsight.data.verification import Verification

app = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    short_help="List, download, check and describe datasets; manage the feature cache.",
    help="""[bold cyan]secondsight data stats ./photos[/]

List, download, check and describe datasets; manage the feature cache.""",
)

AS_JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")
SPEC = typer.Argument(
    ...,
    metavar="DATA",
    help="A folder, a CSV or Parquet table, NAME:PATH (cub200:data/cub200), or the name of a downloaded dataset.",
)


@verb(app, "list", "secondsight data list")
def list_datasets(
    check: bool = typer.Option(False, "--check", help="Ask the servers whether the links answer now."),
    as_json: bool = AS_JSON,
) -> None:
    """The datasets that are known by name, their splits, and where they come from."""
    from secondsight.data.readers.registry import DATASETS

    rows = [_row(dataset, check) for dataset in DATASETS.values()]
    if as_json:
        print_json(rows)
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("name", "what it is, and its licence", "train", "test", "download"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "train", "test"))
    for row in rows:
        parts = [_part(row["parts"].get(part)) for part in ("train", "test")]
        what = f"{marked(row['title'])}\n[dim]{marked(row['licence'])}[/]"
        table.add_row(f"[bold]{row['name']}[/]", what, *parts, _link(row))
    out = console()
    out.print(table)
    out.print(
        "Splits: [bold]standard[/] (the train and test of the table; of your own data: train/ and test/ folders or a "
        "split column) and [bold]validation[/] (half of the training classes held out; --fold 1 swaps the halves).\n"
        "Get one: [bold]secondsight data get cub200[/]. Then use it by its name, as NAME:PATH, or as a path.",
        highlight=False,
    )


def _row(dataset: Dataset, check: bool) -> dict[str, Any]:
    from secondsight.data.fetch.addresses import answers

    urls = [url for archive in dataset.archives for url in archive.urls]
    return {
        "name": dataset.name,
        "title": dataset.title,
        "parts": {p: {"classes": c.classes, "images": c.images} for p, c in dataset.parts.items()},
        "splits": ["standard", "validation"],
        "link": dataset.link,
        "urls": {url: answers(url) if check else None for url in urls},
        "mirrors": list(dataset.mirrors),
        "licence": dataset.licence,
        "homepage": dataset.homepage,
    }


def _part(part: dict[str, int] | None) -> str:
    return f"{part['images']:,} images\n{part['classes']:,} classes" if part else "–"


def _link(row: dict[str, Any]) -> str:
    if not row["link"]:
        return "–"
    if row["link"].startswith("dead"):
        return f"[red]{row['link']}[/]\n--url or --from: see [bold]data get {row['name']}[/]"
    if None in row["urls"].values():
        return f"official, {len(row['urls']) - 1} mirror\n[dim]--check asks them[/]"
    states = ["[green]answers[/]" if answer else "[red]no answer[/]" for answer in row["urls"].values()]
    return "\n".join(f"{'mirror' if i else 'official'}: {state}" for i, state in enumerate(states))


@verb(app, "get", "secondsight data get cub200")
def get_dataset(
    name: str = typer.Argument(..., metavar="NAME", help="cub200, cars196 or sop."),
    root: Path | None = typer.Option(None, help="Folder that holds datasets; by default $SECONDSIGHT_DATA or ./data."),
    url: list[str] = typer.Option([], help="A mirror, instead of the official address; once per archive."),
    from_file: list[Path] = typer.Option([], "--from", metavar="FILE", help="An archive you have; once per archive."),
    no_checksum: bool = typer.Option(
        False, "--no-checksum", help="Accept an archive that was repacked; only count its images."
    ),
    force: bool = typer.Option(False, "--force", help="Replace what is there."),
    keep: bool = typer.Option(False, "--keep", help="Keep the downloaded archives."),
    as_json: bool = AS_JSON,
) -> None:
    """Download a dataset, or unpack archives you have, and check that it is whole. Interrupted downloads continue."""
    from secondsight.data.fetch.dataset import get

    images = get(name, root=root, urls=url, files=from_file, checksum=not no_checksum, force=force, keep=keep)
    if as_json:
        print_json({"name": name, "root": str(images.root), "images": len(images), "classes": len(images.classes)})
        return
    console().print(
        f"[bold]{name}[/]: {len(images):,} images of {len(images.classes):,} classes in {marked(str(images.root))}\n"
        f"Use it as [bold]{marked(f'{name}:{images.root}')}[/]",
        highlight=False,
    )


@verb(app, "verify", "secondsight data verify ./photos --decode")
def verify_dataset(
    data: str = SPEC,
    decode: bool = typer.Option(False, "--decode", help="Also decode every image."),
    duplicates: bool = typer.Option(False, "--duplicates", help="Also look for the same file under two names."),
    as_json: bool = AS_JSON,
) -> None:
    """Check a dataset: counts, missing and broken files, labels, splits. The exit code is 1 if anything is wrong."""
    from secondsight.data.verification import verify

    report = verify(data, decode=decode, duplicates=duplicates)
    print_json(report.to_dict()) if as_json else _show_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _show_report(report: Verification) -> None:
    out = console()
    parts = ", ".join(f"{name} {count:,}" for name, count in report.parts.items())
    out.print(
        f"[bold]{report.dataset}[/] in {marked(report.root)}: {report.images:,} images, {report.classes:,} classes"
        + (f" ({marked(parts)})" if parts else ""),
        f"checked: {', '.join(report.checked) or 'nothing, it does not open'}; splits that can be used: "
        f"{', '.join(report.splits) or 'none'}",
        sep="\n",
        highlight=False,
    )
    if report.problems:
        table = Table("", "how many", "what", "for example", show_lines=True)
        for p in report.problems:
            sign = "[red]✗[/]" if p.severity == "error" else "[yellow]![/]"
            more = "\n…" if p.count > len(p.examples) > 0 else ""
            table.add_row(sign, f"{p.count:,}", marked(p.message), marked("\n".join(p.examples) + more))
        out.print(table)
    errors = sum(p.severity == "error" for p in report.problems)
    if errors:
        out.print(f"[red]✗ {errors} {'kind' if errors == 1 else 'kinds'} of error[/]")
    else:
        out.print("[green]✓ no errors[/]")


@verb(app, "stats", "secondsight data stats ./photos")
def dataset_stats(
    data: str = SPEC,
    split: str = typer.Option("all", help="all, validation, or a part: train, test …"),
    sample: int = typer.Option(500, min=0, help="How many files to open for their size and kind; 0 is all of them."),
    duplicates: bool = typer.Option(False, "--duplicates", help="Count the files that are copies of others."),
    as_json: bool = AS_JSON,
) -> None:
    """Images, classes, images per class, sizes and kinds of files."""
    from secondsight.data.statistics import stats

    figures = stats(data, split=split, sample=sample, duplicates=duplicates)
    print_json(figures.to_dict()) if as_json else _show_stats(figures)


def _show_stats(s: Stats) -> None:
    out = console()
    table = Table(title=f"{marked(s.root)} ({s.dataset})", title_justify="left", show_header=False)
    rows: list[tuple[str, str]] = [
        ("images", f"{s.images:,}" + (f", {s.missing:,} of them missing" if s.missing else "")),
        ("classes", f"{s.classes:,}" if s.classes else "no labels"),
        *((f"part {name}", f"{p['images']:,} images, {p['classes']:,} classes") for name, p in s.parts.items()),
        *([("groups", f"{s.groups:,}")] if s.groups is not None else []),
        ("images per class", _range(s.per_class)),
        ("classes with one image", f"{s.single:,}" + (" — drop them with --min-images 2" if s.single else "")),
        ("largest classes", ", ".join(f"{name} ({count:,})" for name, count in s.largest)),
        ("smallest classes", ", ".join(f"{name} ({count:,})" for name, count in s.smallest)),
        ("width × height", f"{_range(s.width)}  ×  {_range(s.height)}"),
        ("kilobytes", _range(s.kilobytes)),
        ("colour modes", ", ".join(f"{mode} {count:,}" for mode, count in s.modes.items())),
        ("formats", ", ".join(f"{kind} {count:,}" for kind, count in s.formats.items())),
        ("files looked at", f"{s.sampled:,}" + (f", {s.unreadable:,} of them no pictures" if s.unreadable else "")),
        *([("copies", f"{s.duplicates:,}")] if s.duplicates is not None else []),
        ("fingerprint", s.fingerprint),
    ]
    unlabelled = ("images per class", "classes with one image", "largest classes", "smallest classes")
    for name, value in rows:
        if s.classes or name not in unlabelled:
            table.add_row(name, marked(value))
    out.print(table, highlight=False)
    _show_histogram(out, s)


def _range(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.min == spread.max:
        return f"{spread.min:,.0f} each"
    return " … ".join(f"{value:,.0f}" for value in (spread.min, spread.median, spread.max)) + " (min … median … max)"


def _show_histogram(out: Console, s: Stats) -> None:
    if len(s.histogram) < 2:  # one bar says no more than the table
        return
    most = max(count for _, _, count in s.histogram)
    table = Table("images", "classes", "", title="Images per class", title_justify="left", box=None)
    for start, end, count in s.histogram:
        bar = "█" * round(40 * count / most) or ("▏" if count else "")
        table.add_row(f"{start}" if start == end else f"{start}–{end}", f"{count:,}", f"[cyan]{bar}[/]")
    out.print(table)


@verb(app, "cache", "secondsight data cache --keep 10GB")
def feature_cache(
    directory: Path | None = typer.Option(
        None, help="By default $SECONDSIGHT_CACHE/features, or secondsight/features in the user's cache."
    ),
    keep: str | None = typer.Option(
        None, metavar="SIZE", help="Remove what was used longest ago until no more than this is left: 10GB, 500MB, 0."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Show what the feature cache holds; --keep 10GB makes room. What is removed is computed again when needed."""
    from secondsight.data.cache.feature_cache import FeatureCache, default_directory, size

    cache = FeatureCache(directory or default_directory())
    if cache.directory.exists() and not cache.directory.is_dir():
        raise ConfigError(f"--directory {cache.directory}: a file; name the folder that holds the cache")
    removed = [] if keep is None else cache.prune(_bytes(keep))
    entries = cache.entries()
    if as_json:
        print_json(
            {
                "directory": str(cache.directory),
                "removed": [str(e.path) for e in removed],
                "entries": [{**asdict(e), "path": str(e.path)} for e in entries],
            }
        )
        return
    out = console()
    if entries:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False)
        for heading in ("last used", "images", "of an image", "size", "network and transform"):
            table.add_column(heading, justify="right" if heading in ("images", "size") else "left")
        for e in entries:
            used = datetime.datetime.fromtimestamp(e.used).strftime("%Y-%m-%d %H:%M")
            shape = "×".join(map(str, e.shape))
            source = ", ".join(marked(e.key[name]) for name in ("network", "transform") if name in e.key)
            table.add_row(used, f"{e.rows:,}", shape, size(e.bytes), source)
        out.print(table)
    if removed:
        out.print(f"removed {len(removed)}: {size(sum(e.bytes for e in removed))}", highlight=False)
    total = size(sum(e.bytes for e in entries))
    out.print(f"{marked(str(cache.directory))}: {total} in all", highlight=False, soft_wrap=True)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|g|t)?i?b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"--keep {text!r}: a size such as 10GB, 500MB or 0")
    return int(float(match[1]) * 1000 ** " kmgt".index(match[2] or " "))
