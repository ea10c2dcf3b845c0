"""What must stand in a message is looked for in its order."""

import pytest

from tests.support.wording import assert_says, missing_parts


def test_parts_are_looked_for_in_their_order() -> None:
    message = "72 contexts show a loss below 5 points: give --limit 72"
    assert missing_parts(message, "72 contexts", "5 points", "--limit 72") == []
    assert missing_parts(message, "5 points", "72 contexts", "--limit 7") == ["72 contexts"]
    assert missing_parts(message, "--limit 72", "72") == ["72"]  # the last one is taken already


def test_a_part_that_a_message_lacks_is_named_beside_the_message() -> None:
    with pytest.raises(AssertionError, match=r"\['--limit 6'\] is not, .* in: give --limit 72"):
        assert_says("give --limit 72", "give", "--limit 6")
