"""``python -m paraserve``."""

import sys

from paraserve.cli import main

if __name__ == "__main__":
    sys.exit(main())
