"""Where messages to people go: standard error, so that standard output holds results alone."""

from rich.console import Console

console = Console(stderr=True, highlight=False, markup=False)
