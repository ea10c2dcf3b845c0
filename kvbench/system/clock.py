"""The day by the clock of this machine."""

from datetime import UTC, datetime


def today() -> str:
    """Returns the day here and now, such as ``2026-11-28``."""
    return datetime.now(UTC).astimezone().date().isoformat()
