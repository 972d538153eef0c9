"""`python -m penstock`: the command, or a program as `penstock run` runs it."""

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].endswith(".py"):
        sys.argv.insert(1, "run")
    main(prog_name="penstock")
