"""A press that changes what all others read is found by the full cache's answers, which are asked again behind it."""

from pathlib import Path

import pytest
import torch

from kvbench.store.store import Store
from tests.support.models.runs import CommandLine

PRESS = """
from dataclasses import dataclass
import torch
from kvpress import ScorerPress

@dataclass
class Press(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        {act}
        return keys.norm(dim=-1)
"""


def write_press(folder: Path, act: str) -> str:
    (folder / "press.py").write_text(PRESS.format(act=act))
    return f"{folder / 'press.py'}:Press"


CHANGE = "torch.rsqrt = lambda values: values ** -0.4"


@pytest.mark.parametrize("context", [1, 3])
def test_a_press_that_changes_a_global_of_torch_at_any_context_fails_its_unit_and_is_named(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: int
) -> None:
    monkeypatch.setattr(torch, "rsqrt", torch.rsqrt)  # is put back behind the test
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    late = f"Press.calls = getattr(Press, 'calls', 0) + 1\n        if Press.calls > {2 * (context - 1)}: {CHANGE}"
    words = ("--tasks", "base", "--limit", 3, "--ratios", 0.5)  # the press is called once in each of two layers
    assert cli(*cli.words("--policies", write_press(tmp_path, late), *words)) == 1
    assert "behind Press the full cache answers base" in cli.err
    assert "otherwise than before" in cli.err
    assert Store.open(cli.folder / "runs/x").run.status != "complete"


def test_a_press_that_leaves_all_alone_runs(cli: CommandLine, tmp_path: Path) -> None:
    assert cli(*cli.words("--policies", write_press(tmp_path, "pass"))) == 0
    assert set(Store.open(cli.folder / "runs/x").frame().status) == {"ok"}
