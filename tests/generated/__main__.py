"""The entry point of the command."""

import sys

from tests.generated.command import main

sys.exit(main())
