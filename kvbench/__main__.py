"""Entry point of ``python -m kvbench``."""

import sys

from kvbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
