"""``secondsight``: one file a verb. The verbs' modules import only what is light; torch is loaded by the verb that
runs.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import typer

from secondsight.cli import data, search
from secondsight.cli.help_page import Verb, VerbGroup
from secondsight.cli.trouble import is_usage, report
from secondsight.cli.verb import verb
from secondsight.errors import DataError
from secondsight.memory import keep_freed
from secondsight.terminal import tolerate_encodings
from secondsight.version import __version__


class Verbs(VerbGroup):
    """All verbs. What click would say in a box of several lines is one line, like every other error, and an EOFError,
    which a file that was cut off gives, is not "Aborted." without a reason.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            code = super().main(*args, **options | {"standalone_mode": False})
        except Exception as error:
            if not is_usage(error):
                raise
            code = report(error)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise DataError(f"a file ends too early ({error}); it was cut off: make it or download it again") from error


app = typer.Typer(
    cls=Verbs,
    name="secondsight",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""[bold cyan]secondsight demo[/]
[bold cyan]secondsight index ./photos[/]
[bold cyan]secondsight search photos.index query.jpg --sheet hits.png[/]

Search your pictures by picture, see exactly why two of them match, and train the model on your own classes.""",
)
VERBS: dict[str, dict[str, str]] = {
    "Your pictures": {
        "demo": "secondsight demo",
        "index": "secondsight index ./photos",
        "search": "secondsight search photos.index query.jpg --sheet hits.png",
        "serve": "secondsight serve photos.index --open",
        "explain": "secondsight explain a.jpg b.jpg --model runs/photos -o why.png",
        "duplicates": "secondsight duplicates photos.index",
        "update": "secondsight update photos.index",
        "info": "secondsight info photos.index",
        "check": "secondsight check photos.index",
    },
    "Train and evaluate": {
        "train": "secondsight train --data ./photos",
        "evaluate": "secondsight evaluate runs/photos ./photos",
        "compare": "secondsight compare runs/first runs/second",
        "codewords": "secondsight codewords runs/photos ./photos -o codewords.html",
        "reproduce": "secondsight reproduce headline --data CUB_200_2011 --dry-run",
    },
    "Take it elsewhere": {
        "embed": "secondsight embed runs/photos ./photos -o photos.vectors",
        "export": "secondsight export runs/photos -o photos.onnx",
        "compress": "secondsight compress runs/photos/best --dim 128 --data ./photos",
    },
    "What there is": {
        "poolings": "secondsight poolings",
        "backbones": "secondsight backbones",
        "losses": "secondsight losses",
        "recipes": "secondsight recipes photos",
    },
}
"""Purpose → verb → the example that its help begins with. The verb is the function of that name in its file here."""


for _panel, _verbs in VERBS.items():
    for _name, _example in _verbs.items():
        _function = getattr(importlib.import_module(f"secondsight.cli.{_name}"), _name)
        verb(app, _name, _example, panel=_panel, cls=search.Search if _name == "search" else Verb)(_function)
app.add_typer(data.app, name="data", rich_help_panel="What there is")


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
    warnings.filterwarnings("ignore", module=r"PIL\.")  # a picture is used or refused with a cause: no more to say
    try:
        app(prog_name="secondsight")
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
