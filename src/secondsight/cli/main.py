"""``secondsight``: one file a verb. The verbs' modules import only what is light; torch is loaded by the verb that
runs.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from secondsight.cli import (
    backbones,
    check,
    codewords,
    compare,
    compress,
    data,
    demo,
    duplicates,
    embed,
    evaluate,
    explain,
    export,
    index,
    info,
    losses,
    poolings,
    recipes,
    reproduce,
    search,
    serve,
    train,
    update,
)
from secondsight.cli.trouble import report
from secondsight.errors import DataError
from secondsight.memory import keep_freed
from secondsight.terminal import tolerate_encodings
from secondsight.version import __version__


class Verbs(TyperGroup):
    """All verbs. click would turn an EOFError, which a file that was cut off gives, into "Aborted." and no reason."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise DataError(f"a file ends too early ({error}); it was cut off, make or get it again") from error


app = typer.Typer(
    cls=Verbs,
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
app.command("index")(index.index)
app.command("update")(update.update)
app.command("search", cls=search.Search)(search.search)
app.command("serve")(serve.serve)
app.command("duplicates")(duplicates.duplicates)
app.command("info")(info.info)
app.command("check")(check.check)
app.command("export")(export.export)
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
    """Run the command line; whatever goes wrong is printed as a sentence, not as a traceback."""
    keep_freed()
    tolerate_encodings()
    try:
        app()
    except Exception as error:
        sys.exit(report(error))
    finally:
        _flush()


def _flush() -> None:
    """Say that the last lines could not be written while there is still someone to say it."""
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # or Python would try again, and complain in its own words
        sys.exit(report(error))
