"""The workflow of docs/policies.md passes a sound press, and fails a broken one with the gate's
exit status."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.scripts.tables import DOCS
from kvbench.cli.program import main
from kvbench.system.errors import GateError

# A press that keeps so many of the last tokens, whatever it is asked for.
PRESS = """
from dataclasses import dataclass
import torch
from kvpress import ScorerPress

@dataclass
class MyPress(ScorerPress):
    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        kept = {kept}
        return keys[:, :, -kept:].contiguous(), values[:, :, -kept:].contiguous()
"""
SOUND, BROKEN = "keys.shape[2] - 1", "4"


@pytest.fixture(scope="module")
def steps() -> list[str]:
    """The shell commands of the only workflow of the documents."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "policies.md").read_text(), re.M | re.S)
    workflow: dict[Any, Any] = yaml.safe_load(text)
    assert workflow[True] == "pull_request", (
        "YAML 1.1 reads the key `on` as true, and GitHub does not"
    )
    (job,) = workflow["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(("kept", "status"), [(SOUND, 0), (BROKEN, GateError.status)])
def test_the_workflow_passes_a_sound_press_and_fails_a_broken_one(
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: str,
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PRESS.format(kept=kept))
    install, compare = steps
    assert shlex.split(install)[:2] == ["pip", "install"]
    program, *words = shlex.split(compare)
    assert program == "kvbench"
    assert main([*words, "--limit", "2", "--context-tokens", "native"]) == status
    said = capsys.readouterr()
    if status:
        assert said.err.splitlines()[-1].startswith("error: the gate fails: MyPress −")
    else:
        assert said.out.startswith("the gate passes: a loss of 5 is allowed")
