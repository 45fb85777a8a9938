"""``secondsight search``: which pictures of an index are most like this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from secondsight.cli import options
from secondsight.cli.help_page import Verb
from secondsight.cli.runtime import OPTION_HELP, use
from secondsight.errors import ConfigError, DataError, require_known
from secondsight.terminal import console as terminal
from secondsight.terminal import from_here, marked, named, print_json, table_console

if TYPE_CHECKING:
    from secondsight.index import Hits, Index


class Search(Verb):
    """``--why`` may stand without a file name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_reason(args))


def with_reason(args: list[str]) -> list[str]:
    """A bare ``--why`` gets a file name; one that ends in a suffix is taken as it is, and judged later.

    >>> with_reason(["photos.index", "--why", "a.jpg"]), with_reason(["a.jpg", "--why", "b.png"])
    (['photos.index', '--why', 'why.html', 'a.jpg'], ['a.jpg', '--why', 'b.png'])
    """
    out = []
    for here, following in zip(args, [*args[1:], "-"], strict=False):  # nothing follows nothing
        out.append(here)
        picture = os.path.exists(following) and not following.lower().endswith((".png", ".html"))
        bare = following.startswith("-") or following.lower().endswith((".jpg", ".jpeg")) or picture
        if here == "--why" and bare:
            out.append("why.html")
    return out


def search(
    path: Path = typer.Argument(help="An index."),
    queries: list[str] = typer.Argument(None, help="Pictures to look for, or ids of items: each gets its own answer."),
    k: int = typer.Option(10, "-k", min=1, max=1_000_000, help="Hits for each query."),
    where: list[str] = typer.Option(
        None, help="Only items that satisfy this: label=heron, 'year>=2010', 'path=2024/*'; may be repeated."
    ),
    like: list[str] = typer.Option(None, help="An example of what is wanted, a file or an id; may be repeated."),
    unlike: list[str] = typer.Option(None, help="An example of what is not wanted; may be repeated."),
    sheet: Path = typer.Option(None, help="Write a contact sheet (PNG) of queries and hits."),
    exact: bool = typer.Option(False, "--exact", help="Compare with every vector, whatever the engine."),
    rerank: str = typer.Option(
        None,
        help="A second look at the first answers: alpha-qe, k-reciprocal, or links (agreement in space: for the same "
        "object elsewhere in a picture; runs the network once a hit).",
    ),
    box: str = typer.Option(
        None, help="Only this part of the query pictures: left,top,right,bottom from 0 to 1, as in 0.2,0.1,0.6,0.7."
    ),
    why: Path = typer.Option(
        None, help="Draw why the first hit matches: .png, or .html to explore; --why alone writes why.html."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    device: str = typer.Option("cpu", help="Where the model runs."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
    model: Path = typer.Option(None, help="An exported file to embed with instead of the model; needs no torch."),
) -> None:
    """Find the pictures of an index that are most like yours.

    [bold]secondsight search photos.index a.jpg --sheet out.png[/] finds ten and draws them.
    [bold]secondsight search photos.index a.jpg b.jpg -k 20 --where label=heron[/] finds 20, of herons only.
    [bold]secondsight search photos.index a.jpg --box 0.2,0.1,0.6,0.7 --why[/] looks for a part, and draws the reason.
    [bold]secondsight search photos.index --like 17 --like a.jpg --unlike b.jpg[/] combines examples into one query.

    An index made with [bold]--parts 8[/] also finds small things in large pictures, and says where they are.
    Scores are cosines: 1 is the same picture. The probability says what that means in this index
    (see [bold]secondsight info[/]); hits below its cut are no match, and are dimmed.
    Pictures that cannot be read are set aside and listed; it is an error only if none can be read.
    """
    from secondsight import files
    from secondsight import index as room
    from secondsight.index.filters import parsed

    if (box or why or rerank) and not queries:
        raise ConfigError(
            "--box, --why and --rerank need pictures to look for: give them instead of --like and --unlike"
        )
    if rerank is not None:
        require_known("re-ranking of a search", rerank, ("alpha-qe", "k-reciprocal", "links"))
    if why is not None:
        from secondsight.explain.explanation import check_target

        check_target(why)
    if path.is_file():
        raise ConfigError(f"{path} is a file; name the index first, as in: secondsight search photos.index {path}")
    if not (queries or like or unlike):
        raise ConfigError(f"give a picture to look for: secondsight search {path} query.jpg")
    if queries and (like or unlike):
        raise ConfigError("pictures to look for, or examples with --like and --unlike: give one of the two")
    if sheet is not None:
        if sheet.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise ConfigError(f"--sheet {sheet}: a contact sheet is a picture; name it .png, .jpg or .webp")
        files.check_writable(sheet, directory=False)
    for text in [*(queries or []), *(like or []), *(unlike or [])]:
        _check_query(text)
    found, condition = room.open(path, device=options.device(device)), parsed(where or [])
    use(found, runtime, model)
    asked: list[Any] = []
    aside: dict[str, str] = {}
    if queries:
        asked = [_query(found, text) for text in queries]
        look = partial(_searched, found, k=k, box=box, rerank=rerank, where=condition, exact=exact)
        hits, aside = _answered(look, asked)
        asked = [one for one in asked if one not in aside]
        names = [(str(one), _picture(found, one)) for one in asked]
    else:
        likes = [_query(found, text) for text in like or []]
        hits = found.like(likes, [_query(found, text) for text in unlike or []], k, where=condition)
        text = " ".join([*(f"+{t}" for t in like or []), *(f"−{t}" for t in unlike or [])])
        names = [(text, _picture(found, likes[0]) if likes else None)]
    if sheet is not None:
        from secondsight.index.sheet import contact_sheet

        contact_sheet(names, hits, sheet)
    if as_json:
        rows = [{"query": name, "hits": hits.row(i), "why": hits.why[i] or None} for i, (name, _) in enumerate(names)]
        print_json([*rows, *({"query": name, "hits": [], "why": cause} for name, cause in aside.items())])
    else:
        _print([name for name, _ in names], hits)
    if aside:
        loud = terminal(stderr=True, highlight=False, style="yellow")
        loud.print(f"{len(aside)} of {len(queries)} pictures cannot be read; the others are answered")
        for name, cause in aside.items():
            loud.print(f"  set aside: {named(name)}: {marked(cause)}", soft_wrap=True)
    if why is not None and hits.ids[0, 0] >= 0:
        from secondsight.index.regions import why as explained

        region = None if box is None else box.split(",")
        explained(found, asked[0], int(hits.ids[0, 0]), region=region).save(why)
        terminal(stderr=True, highlight=False).print(f"why the first hit matches: {marked(why)}", soft_wrap=True)
    if sheet is not None:
        terminal(stderr=True, highlight=False).print(f"contact sheet: {marked(sheet)}", soft_wrap=True)


def _answered(look: Callable[[list], Hits], asked: list) -> tuple[Hits, dict[str, str]]:
    """The answers to the queries that can be read, and the files that cannot, each with the cause."""
    from secondsight.index.queries import unreadable

    try:
        return look(asked), {}
    except DataError:
        aside = {asked[i]: error.cause for i, error in unreadable(asked).items()}
        if not aside or all(one in aside for one in asked):
            raise
        return look([one for one in asked if one not in aside]), aside


def _searched(index: Index, asked: list, k: int, *, box: str | None, rerank: str | None, **rest: Any) -> Hits:
    """Whole pictures or a part of each; with links, more hits than asked for, of which the best stay."""
    from secondsight.explain.geometry import checked_box
    from secondsight.index.regions import FIRST, by_links

    links, region = rerank == "links", None if box is None else checked_box(box.split(","))
    if links and box:
        raise ConfigError("--rerank links compares whole pictures; leave it or --box out")
    first = max(k, FIRST) if links else k
    hits = index.search(asked, first, rerank=None if links else rerank, region=region, **rest)
    return by_links(index, asked, hits, k) if links else hits


def _check_query(text: str) -> None:
    """Mistakes are said before anything is loaded."""
    from secondsight.data.readers.paths import require_path

    if os.path.isdir(text):
        raise ConfigError(f"{text} is a folder; search by a picture in it, or by several: {text.rstrip('/')}/*.jpg")
    if text.isdigit() or os.path.exists(text):
        return
    if not Path(text).suffix:
        raise ConfigError(
            f"{text!r} is no file; search by a picture, or by the id of an item: it cannot search by text"
        )
    require_path(Path(text))


def _query(index: Index, text: str) -> Any:
    """A file if there is one of that name, otherwise the id of an item."""
    if os.path.exists(text) or not text.isdigit():
        return text
    index.item(int(text))
    return int(text)


def _picture(index: Index, query: Any) -> Any:
    return index.item(query).path if isinstance(query, int) else query


def _print(names: list[str], hits: Hits) -> None:
    console = table_console()
    for i, name in enumerate(names):
        table = Table(header_style="bold", box=None)
        labelled, calibrated = any(hits.labels[i]), not all(p != p for p in hits.probability[i])
        for column in ("score", *(["probability"] if calibrated else []), "id"):
            table.add_column(column, justify="right")
        located = hits.boxes is not None
        for column in (*(["label"] if labelled else []), *(["where"] if located else []), "path"):
            table.add_column(column, overflow="fold")
        for hit in hits.row(i):
            chance = [f"{100 * hit['probability']:.0f} %"] if calibrated else []
            label = [marked(hit["label"] or "")] if labelled else []
            style = None if hit["match"] else "dim"
            place = named(from_here(hit["path"] or ""))
            where = [",".join(f"{side:.2f}" for side in hit["box"]) if hit["box"] else "the whole"] if located else []
            table.add_row(f"{hit['score']:.3f}", *chance, str(hit["id"]), *label, *where, place, style=style)
        console.print(f"[italic]like {named(name)}[/]", soft_wrap=True)
        if hits.row(i):
            console.print(table)
        if hits.row(i) and not hits.matches[i].any():
            console.print("nothing here matches; these are the nearest")
        if hits.why[i]:
            console.print(f"{len(hits.row(i))} of {hits.ids.shape[1]} hits: {marked(hits.why[i])}", style="yellow")
