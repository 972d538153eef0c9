"""`python -m penstock`: runs a command, or a Python program as `penstock run` does."""

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].endswith(".py"):
        sys.argv.insert(1, "run")
    main(prog_name="penstock")
