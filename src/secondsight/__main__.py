"""``secondsight``, and ``python -m secondsight``: the command line."""

import sys


def run() -> None:
    """Load the command line and run it; Ctrl-C while it still loads ends it like any other, without a traceback."""
    try:
        try:
            from secondsight.cli.main import main
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("secondsight"):
                raise
            sys.exit(
                f"error: the command line needs the package {error.name}: pip install secondsight; where there is an "
                "exported model and no more, python -m secondsight.inference"
            )
        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
