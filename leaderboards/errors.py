"""The one error that a user of the boards sees."""


class LeaderboardError(ValueError):
    """Records that no board can be made of; the message is one line that says what to do."""
