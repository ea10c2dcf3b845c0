"""The doctor finds what is wrong with a press, and nothing with a sound one."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from kvpress import BasePress, KnormPress

from kvbench.checks import patient, press
from kvbench.checks.patient import Patient, admit
from kvbench.checks.press import CHECKS, RUNS, examine
from kvbench.models.load import LoadedModel
from policies import POLICIES, Policy, load_plug_in
from tests.support.models.runs import CommandLine
from tests.support.models.toy import (
    ActingPress,
    ActingScorer,
    keep_every_third,
    pressing,
    toy_model,
)

ALL_LENGTHS = patient.LENGTHS
PRESS = """
from dataclasses import dataclass
from kvpress import ScorerPress

@dataclass
class LoudValues(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return values.norm(dim=-1)
"""


@pytest.fixture(autouse=True)
def few_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are of other things than the length of a context."""
    monkeypatch.setattr(patient, "LENGTHS", ALL_LENGTHS[:3])


def findings_of(model: LoadedModel, policy: Policy, *checks: str) -> dict[str, tuple[str, str]]:
    """Examines a policy, by some checks or by all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            press, "CHECKS", {name: CHECKS[name] for name in checks or CHECKS if name in CHECKS}
        )
        return {
            finding.check: (finding.outcome, finding.text)
            for finding in examine(admit(policy, model))
        }


LAZY = """
from dataclasses import dataclass
from kvpress import BasePress

@dataclass
class Lazy(BasePress):
    compression_ratio: float = 0.0

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        return keys, values
"""


def unseeded(module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.rand(keys.shape[:3], generator=torch.Generator().manual_seed(torch.seed() % 2**31))


def keeps_all(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    return keys, values


def draws(module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.rand(keys.shape[:3])


def gives_nan(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    return keys * float("nan"), values


def changes_weights(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    module.o_proj.weight.data.mul_(1.001)
    return keys[:, :, 1:], values[:, :, 1:]


def leaves_a_hook_that_raises(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    module.o_proj.register_forward_hook(lambda *_: 1 / 0)
    return keys[:, :, 1:], values[:, :, 1:]


def writes_to_its_keys(module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any) -> Any:
    return keys.mul_(0.5).norm(dim=-1)


def writes_unseen(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    keys.data.mul_(0.5)
    values.data.add_(1.0)
    return keys.norm(dim=-1)


BROKEN: dict[str, tuple[Callable[[Any], BasePress], str, str]] = {
    "unseeded": (
        lambda s: ActingScorer(s.ratio, unseeded),
        "is it deterministic?",
        "a second run leaves another cache",
    ),
    "budget": (
        lambda s: ActingPress(keep_every_third),
        "is the budget kept?",
        "tokens of a head off",
    ),
    "keeps all": (
        lambda s: ActingPress(keeps_all),
        "is the budget kept?",
        "nothing is compressed: every token is kept",
    ),
    "draws": (
        lambda s: ActingScorer(s.ratio, draws),
        "does it share the prefill?",
        "draw from torch's generator",
    ),
    "in place": (
        lambda s: ActingScorer(s.ratio, writes_to_its_keys),
        "does it run?",
        "its score writes into the hidden states, keys or values",
    ),
    "in place, unseen": (
        lambda s: ActingScorer(s.ratio, writes_unseen),
        "does it share the prefill?",
        "it writes in place to the keys and values that it is handed",
    ),
    "ratio 0": (
        lambda s: ActingPress(keep_every_third),
        "does ratio 0 change nothing?",
        "its answers differ",
    ),
    "NaN": (lambda s: ActingPress(gives_nan), "does it run?", "it returned NaN"),
    "renamed": (lambda s: KnormPress(s.ratio), "is it new?", "the same cache as knorm"),
    "hook": (
        lambda s: ActingPress(leaves_a_hook_that_raises),
        "is the model left alone?",
        "o_proj._forward_hooks",
    ),
    "weights": (
        lambda s: ActingPress(changes_weights),
        "is the model left alone?",
        "o_proj.weight",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    build, question, message = BROKEN[name]
    findings = findings_of(toy_model("llama"), pressing("broken", build), RUNS, question)
    outcome, text = findings[question]
    assert outcome == "wrong"
    assert message in text


@pytest.mark.parametrize(
    "name",
    [
        *("finch", "snapkv+fair", "decoding_knorm"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("adakv_snapkv", "think")),
    ],
)
def test_registered_policies_are_sound(llama: LoadedModel, name: str) -> None:
    findings = findings_of(llama, POLICIES[name])
    assert len(findings) == 9
    assert [text for outcome, text in findings.values() if outcome == "wrong"] == []


COPY = """
from dataclasses import dataclass
import torch
from kvpress import ScorerPress, SnapKVPress

@dataclass
class New(SnapKVPress):
    window_size: int = 5

    def score(self, *given):
        return -super().score(*given)
"""


def test_a_press_with_code_of_its_own_is_no_other_under_a_new_name(
    llama: LoadedModel, tmp_path: Path
) -> None:
    (tmp_path / "copy.py").write_text(COPY)
    found, why = CHECKS["is it new?"](admit(load_plug_in(f"{tmp_path / 'copy.py'}:New"), llama))
    assert found == "ok"
    assert re.search(
        r"yes: of \d+ policies \w+ is nearest, which keeps \d+% of the rows that it keeps", why
    )


def test_the_next_step_compares_with_the_nearest_policy(
    cli: CommandLine, toy_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy.py").write_text(COPY)
    assert cli("doctor", f"{tmp_path / 'copy.py'}:New", "--model", toy_folder) == 0, cli.out
    told = " ".join(cli.out.split())
    (nearest,) = re.findall(r"of \d+ policies (\w+) is nearest", told)
    assert f"--against {'snapkv' if nearest == 'snapkv' else f'snapkv,{nearest}'} " in told


def test_the_report_names_every_question_and_ends_with_a_status(
    cli: CommandLine, llama: LoadedModel, tmp_path: Path
) -> None:
    for part in (llama.network, llama.tokenizer):
        part.save_pretrained(tmp_path / "toy")
    (tmp_path / "press.py").write_text(PRESS)
    model = ["--model", str(tmp_path / "toy")]
    assert cli("doctor", f"{tmp_path / 'press.py'}:LoudValues", *model) == 0
    report = cli.out
    for question in (
        "does it run?",
        "is the budget kept?",
        "is it deterministic?",
        "is memory freed?",
        "time?",
    ):
        assert question in report
    assert max(map(len, report.splitlines())) <= 80
    assert "KnormPress is not sound: is it new?" in cli.error(
        "doctor", "kvpress:KnormPress", *model
    )
    (tmp_path / "lazy.py").write_text(LAZY)
    assert "Lazy is not sound" in cli.error("doctor", f"{tmp_path / 'lazy.py'}:Lazy", *model)
    assert "one press at a time" in cli.error("doctor", "snapkv,knorm", *model)


SEVERAL_LENGTHS = """
from dataclasses import dataclass
import torch
from kvpress import ScorerPress

@dataclass
class Edges(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return keys.norm(dim=-1)

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        if not 64 <= keys.shape[2] <= 900:
            return keys, values
        return super().compress(module, hidden_states, keys, values, attentions, kwargs)

@dataclass
class Longest(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        raise NotImplementedError

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        kept = int(keys.shape[2] * (1 - self.compression_ratio))
        kept = kept // 2 if keys.shape[2] > 2000 else kept
        return keys[:, :, :kept].contiguous(), values[:, :, :kept].contiguous()

@dataclass
class Running(ScorerPress):
    mean = 0.0

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        Running.mean = 0.5 * Running.mean + keys
        Running.mean = Running.mean.mean(dim=(0, 1, 2), keepdim=True)
        return (keys * Running.mean).sum(-1)

@dataclass
class Unseeded(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        generator = torch.Generator()
        generator.seed()
        return torch.rand(keys.shape[:3], generator=generator)
"""


BUDGET, ZERO, TWICE = "is the budget kept?", "does ratio 0 change nothing?", "is it deterministic?"
AT_ALL = "32, 108, 300, 1,000, 4,000 tokens"


@pytest.fixture(scope="module")
def patients(
    llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Patient]:
    """The presses of this file by their names, each tried once for all questions."""
    path = tmp_path_factory.mktemp("presses") / "lengths.py"
    path.write_text(SEVERAL_LENGTHS)
    return cache(lambda name: admit(load_plug_in(f"{path}:{name}"), llama))


@pytest.mark.parametrize(
    ("name", "question", "outcome", "text"),
    [
        ("Edges", BUDGET, "wrong", "every token is kept of 32, 1,000, 4,000 tokens"),
        ("Edges", ZERO, "ok", f"the full cache, or its answers, at {AT_ALL}"),
        ("Edges", TWICE, "ok", f"twice the same at {AT_ALL}"),
        ("Longest", BUDGET, "wrong", "more than 5% at 4,000 tokens"),
        ("Running", TWICE, "wrong", "it carries state from one context to the next"),
        ("Unseeded", TWICE, "wrong", f"another cache of {AT_ALL}: "),
    ],
)
def test_a_press_is_tried_at_five_lengths_and_told_where_it_breaks(
    patients: Callable[[str], Patient],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    question: str,
    outcome: str,
    text: str,
) -> None:
    monkeypatch.setattr(patient, "LENGTHS", ALL_LENGTHS)
    found, told = CHECKS[question](patients(name))
    assert (found, text in told) == (outcome, True), told
