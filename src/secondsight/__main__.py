"""``secondsight``, and ``python -m secondsight``: the command line."""

import sys


def run() -> None:
    """Load the command line and run it; Ctrl-C while it still loads ends it like any other, without a traceback."""
    try:
        from secondsight.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
