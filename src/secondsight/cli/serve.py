"""``secondsight serve``: a collection on a page."""

from __future__ import annotations

from pathlib import Path

import typer

from secondsight.cli import options
from secondsight.cli.runtime import OPTION_HELP, use
from secondsight.errors import ConfigError
from secondsight.memory import one_heap
from secondsight.terminal import console as terminal
from secondsight.terminal import marked


def serve(
    paths: list[Path] = typer.Argument(None, help="An index; several are shown side by side."),
    port: int = typer.Option(8000, min=0, max=65_535, help="The port to listen on; 0 picks a free one."),
    host: str = typer.Option("127.0.0.1", help="The address to listen on; any but this machine's own needs a token."),
    token: str = typer.Option(
        None, envvar="SECONDSIGHT_TOKEN", help="Required of every client; 16 characters or more."
    ),
    open_page: bool = typer.Option(False, "--open", help="Open the page in the browser."),
    device: str = typer.Option("cpu", help="Where the model runs."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
    model: Path = typer.Option(
        None,
        help="An exported file (secondsight export) to embed with instead of the model: no torch, no explanations.",
    ),
) -> None:
    """Search a collection on a page: drop a photo, see the matches, click one, see why.

    [bold]secondsight serve photos.index --open[/]
    [bold]secondsight serve average.index trained.index[/] shows two models side by side.
    [bold]secondsight serve photos.index --host 0.0.0.0 --token "$(openssl rand -hex 16)"[/]

    The same can be asked over HTTP: /openapi.json says how. Nothing leaves this machine.
    """
    from secondsight import index as room
    from secondsight.serve.server import check_token, demo_index, serve

    one_heap()  # the network has a thread of its own
    check_token(host, token)
    if not paths:
        found = demo_index()
        if found is None:
            raise ConfigError(
                "no index given, and no demo to show here; make one: secondsight index ./photos, then "
                "secondsight serve photos.index"
            )
        paths = [found]
    console = terminal(highlight=False)
    device = options.device(device)
    indexes = [room.open(path, device=device) for path in paths]
    for index in indexes:
        use(index, runtime, model)

    def ready(address: str) -> None:
        url = address + (f"?token={token}" if token else "")
        names = ", ".join(f"{marked(index.path)} ({len(index):,} pictures)" for index in indexes)
        console.print(f"[bold]{marked(url)}[/]  {names}; Ctrl-C stops it", soft_wrap=True)
        if open_page:
            typer.launch(url)

    serve(indexes, host=host, port=port, token=token, ready=ready)
