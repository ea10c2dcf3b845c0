"""``python -m kvbench``."""

import signal
import sys

from kvbench.cli import main
from kvbench.interrupts import INTERRUPTS

if __name__ == "__main__":
    INTERRUPTS.install()
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said; Python's own end would answer with a traceback
    sys.exit(status)
