"""`python -m fielddep.cli`: the command line."""

import sys

from fielddep.cli import main

if __name__ == "__main__":
    sys.exit(main())
