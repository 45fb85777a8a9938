"""``secondsight info``: what a model, a run or an index is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from secondsight.errors import DataError
from secondsight.terminal import marked, print_json, table_console

SHOWN = 20  # files that were set aside


def info(
    path: Path = typer.Argument(help="An index, a saved model or a run directory."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Describe an index, a model or a run: size, model, where it came from.

    [bold]secondsight info photos.index[/]
    [bold]secondsight info runs/birds/best[/]
    """
    facts = _facts(path)
    if as_json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    if len(aside := facts.get("why set aside", {})) > SHOWN:
        more = {f"and {len(aside) - SHOWN:,} more": "--json lists all of them"}
        facts["why set aside"] = dict(list(aside.items())[:SHOWN]) | more
    for key, value in facts.items():
        if value not in (None, [], {}, ""):
            table.add_row(key, marked(_words(value)))
    table_console().print(table)


def _facts(path: Path) -> dict[str, Any]:
    from secondsight.data.readers.paths import require_path
    from secondsight.index.catalogue import FILE

    if (path / FILE).is_file():
        from secondsight import index as room

        return room.open(path).info()
    for folder, kind in ((path, "model"), (path / "best", "run")):
        if (folder / "model.safetensors").is_file():
            return {"kind": kind, "path": str(path), **_model(folder)}
    require_path(path)
    raise DataError(
        f"{path}: neither an index, nor a saved model, nor a run with a best/ in it; name one, such as photos.index"
    )


def _model(folder: Path) -> dict[str, Any]:
    from secondsight.index.facts import description
    from secondsight.model import load

    model = load(folder)
    head = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("backbone"))
    return {
        "model": description(model),
        "fingerprint": model.fingerprint(),
        "dimension": model.dim,
        "pixels a side": model.size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "after the backbone": head,
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        lines = [f"{_one_line(key)}: {_words(one)}" for key, one in value.items() if one not in (None, "", [])]
        return "\n".join(line.replace("\n", ", ") for line in lines)
    if isinstance(value, list):
        return "\n".join(_words(one).replace("\n", ", ") for one in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _one_line(name: str) -> str:
    return name.replace("\n", "�")
