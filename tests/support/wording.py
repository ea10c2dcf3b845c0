"""Looks for what a message must say, and not for its sentence."""


def missing_parts(text: str, *parts: str) -> list[str]:
    """Lists the parts that a text does not have in this order."""
    missing = []
    position = 0
    for part in parts:
        place = text.find(part, position)
        if place < 0:
            missing.append(part)
        else:
            position = place + len(part)
    return missing


def assert_says(text: str | None, *parts: str) -> None:
    """Asserts that there is a text, and that it has these parts in this order.

    A test names the numbers, the names and the options that a message has to have. Its sentence may
    then be written better without a change of tests.
    """
    assert text is not None
    missing = missing_parts(text, *parts)
    assert not missing, f"{missing} is not, or not in this order, in: {text}"
