"""The one error that a user of the policies sees."""


class PolicyError(ValueError):
    """A policy that is not known, or that cannot treat this context; one line that says what to do."""
