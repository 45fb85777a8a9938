"""``secondsight``: one file a verb. The verbs' modules import only what is light; torch is loaded by the verb that
runs.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from secondsight.cli import (
    backbones,
    codewords,
    compare,
    compress,
    data,
    demo,
    embed,
    evaluate,
    explain,
    losses,
    poolings,
    recipes,
    reproduce,
    train,
)
from secondsight.errors import SecondsightError
from secondsight.memory import keep_freed
from secondsight.version import __version__

app = typer.Typer(
    name="secondsight",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compact second-order image representations: train an embedding on your own images, judge it honestly, search "
    "with it, and see why two images match.",
)
app.command("poolings")(poolings.poolings)
app.command("backbones")(backbones.backbones)
app.command("codewords")(codewords.codewords)
app.command("compress")(compress.compress)
app.command("demo")(demo.demo)
app.command("embed")(embed.embed)
app.command("evaluate")(evaluate.evaluate)
app.command("explain")(explain.explain)
app.command("losses")(losses.losses)
app.command("train")(train.train)
app.command("recipes")(recipes.recipes)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"secondsight {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
):
    pass


def main() -> None:
    """Run the command line; errors made for people are printed as a sentence, not as a traceback."""
    keep_freed()
    try:
        app()
    except SecondsightError as error:
        # Escaped: an error that names an extra, secondsight[lite], would lose its brackets to rich's markup.
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)
