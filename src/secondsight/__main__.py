from secondsight.cli.main import main

main()
