"""`python -m flambeau` is the command `flambeau`."""

import sys

from flambeau.cli import main

sys.exit(main())
