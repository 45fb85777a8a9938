"""``python -m secondsight``: the command line."""

from secondsight.cli.main import main

main()
