"""The one error that a user of the policies sees."""


class PolicyError(ValueError):
    """A policy that is not known, or that cannot treat this context; one line that says what to do."""


class BrokenPlugInError(PolicyError):
    """A plug-in that is there and cannot be used: a run records it as failed, and all others go on."""


class LevelError(ValueError):
    """A text that names no levels of a kind; one line that says what to do."""
