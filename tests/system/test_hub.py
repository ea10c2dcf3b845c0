"""A machine without network waits for the model hub once, and not for each of its files."""

from collections.abc import Iterator

import huggingface_hub
import pytest
from huggingface_hub import constants

from kvbench.experiments.catalogue import known_policies
from kvbench.models.load import LoadedModel, missing_weights
from kvbench.system import hub


class Unreachable:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def head(self, url: str, timeout: float) -> None:
        self.asked.append(url)
        raise ConnectionError("no route to host")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unreachable]:
    unreachable = Unreachable()
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: unreachable)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.look_for_hub.cache_clear()
    yield unreachable
    hub.look_for_hub.cache_clear()


def test_a_hub_that_is_not_there_is_asked_once_and_told_of(
    session: Unreachable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not hub.look_for_hub()
    assert not hub.look_for_hub()
    assert session.asked == [constants.ENDPOINT]
    assert constants.is_offline_mode()
    assert capsys.readouterr().err.count("only downloaded files are used") == 1


def test_policies_whose_weights_are_not_there_are_found_after_one_question(
    session: Unreachable, llama: LoadedModel
) -> None:
    needing = [policy for policy in known_policies().values() if policy.needs.weights]
    missing = missing_weights(needing, llama)
    assert len(needing) >= 5
    assert set(missing) == {policy.name for policy in needing}
    assert len(session.asked) == 1
