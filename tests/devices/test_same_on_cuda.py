"""On the pretended device every policy, fault, quantisation, task and suite stores what it stores
on a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_gen import FAMILIES, TASKS
from datasets_gen.tasks.prose import PROSE
from kvbench.engine.decode.answers import decode
from kvbench.experiments.catalogue import find_policy
from kvbench.models import precision
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.store.run_file import Job
from kvbench.studies.registry import SUITES
from policies import Level
from policies.faults.registry import FAULTS
from policies.quantisation.registry import QUANTISATIONS
from tests.support.models.both_devices import check_same, run, tables_of
from tests.support.models.devices import work_as
from tests.support.models.pretended_cuda import pretended_cuda
from tests.support.models.toy import PLENTY, RUNNABLE, toy_tokenizer, treat
from tests.support.models.where import on_card, on_host

WITHOUT_AUTOGRAD = [name for name in RUNNABLE if name != "kvgrad"]  # gradients are not pretended
AGNOSTIC = [
    name
    for name in WITHOUT_AUTOGRAD
    if not (RUNNABLE[name].needs.question or RUNNABLE[name].needs.spans)
]
AWARE = [name for name in WITHOUT_AUTOGRAD if RUNNABLE[name].needs.question]
PROTECTING = [name for name in WITHOUT_AUTOGRAD if RUNNABLE[name].needs.spans]
PROTECTING += [f"{name}(as=paper)" for name in PROTECTING if name.endswith("+fair")]
# Each option of a fault that has a way of its own through the code.
FAULTS_WITH_OPTIONS = (
    "gaussian(unit=value,phase=every_step,persistence=transient)",
    "zeros(phase=prefill_write)",
    "multiplicative_normal(phase=write)",
    "multiplicative_uniform(phase=write,tensor=K,layers=H2)",
    "int4+sign_flip(phase=write,rate=0.1)",
    "q4_0(phase=write)",
    "zeros(tokens=evidence)",
    "gaussian(tokens=first4,unit=token)",
    "zeros(phase=step,step=1,persistence=transient,heads=0,layers=H2)",
    "int4(residual=0,group=16)+bitflip(on=codeword,rate=0.05)",
    "snapkv+int4",
    "snapkv+zeros(rate=0.2)",
)
LEVELS = {"ratio": "0.4", "rate": "0.2", "bits": "4"}


def job_of(policies: list[str] | None, tasks: str = "base", **more: object) -> Job:
    names = None if policies is None else ",".join(policies)
    options = {
        "policies": names,
        "tasks": tasks,
        "levels": LEVELS,
        "limit": 1,
        "max_new_tokens": 4,
        "controls": False,
    }
    given = {**options, **more}
    return Job.model_validate(given)


def split(names: list[str], parts: int) -> list[list[str]]:
    return [names[part::parts] for part in range(parts)]


@pytest.mark.parametrize("policies", split(AGNOSTIC, 4), ids="1234")
def test_every_policy(tmp_path: Path, policies: list[str]) -> None:
    records = check_same(job_of(policies), tmp_path)["records"]
    assert set(policies) <= set(records["policy"])


def test_every_policy_that_sees_the_question(tmp_path: Path) -> None:
    assert set(AWARE) <= set(check_same(job_of(AWARE, mode="aware"), tmp_path)["records"]["policy"])


def test_every_policy_that_protects_instructions(tmp_path: Path) -> None:
    records = check_same(job_of(PROTECTING, "instructions"), tmp_path)["records"]
    assert set(PROTECTING) <= set(records["policy"])


@pytest.mark.parametrize("policies", split([*FAULTS, *FAULTS_WITH_OPTIONS], 2), ids="12")
def test_every_fault(tmp_path: Path, policies: list[str]) -> None:
    records = check_same(job_of(policies), tmp_path)["records"]
    assert {find_policy(name).name for name in policies} <= set(records["policy"])


def test_every_quantisation(tmp_path: Path) -> None:
    assert set(QUANTISATIONS) <= set(
        check_same(job_of([*QUANTISATIONS]), tmp_path)["records"]["policy"]
    )


def test_every_task(tmp_path: Path) -> None:
    records = check_same(job_of(["snapkv"], ",".join(TASKS)), tmp_path)["records"]
    assert set(records["task"]) == set(TASKS)


# A device sees nothing of a task but the length of its contexts.
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_of_a_family(tmp_path: Path, family: str) -> None:
    names = set(FAMILIES[family])
    assert (
        set(
            check_same(job_of(["snapkv"], family, context_tokens=1000), tmp_path)["records"]["task"]
        )
        == names
    )


OF_SUITES: dict[str, dict[str, object]] = {
    "routing": {"tasks": "base", "policies": ["snapkv"]},
    "faults": {
        "policies": ["gaussian", "distractor(tokens=other)"]
    },  # the others of a suite are tried above
    "errors": {"tasks": "base", "policies": ["int3", "same_sign(tensor=V)"]},
    "bytes": {"tasks": "base", "policies": ["int8", "knorm+int8", "snapkv+pages16", "tova+shared"]},
    "published": {"tasks": "niah_multikey_1", "context_tokens": 400},
    "board": {"tasks": "base", "policies": ["merging_snapkv", "simlayerkv"]},
    "numerics": {"tasks": "base", "dtypes": "fp32,fp16", "max_new_tokens": 3},
}


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str) -> None:
    # A processor without products of 16 bits rounds sums of float32, which a card does by itself.
    monkeypatch.setattr(precision, "multiplies", lambda _: True)
    of_suite = {"policies": None, "tasks": None, "repeats": 1, **OF_SUITES.get(suite, {})}
    tables = check_same(job_of(suite=suite, **of_suite), tmp_path)  # type: ignore[arg-type]
    assert not any(table.empty for name, table in tables.items() if name != "interventions")


# One policy of each family.
OF_FAMILIES = {
    policy.family: policy for policy in map(find_policy, (*AGNOSTIC, *FAULTS, *QUANTISATIONS))
}
KINDS_OF_TASKS = {task.name: task for task in (TASKS["base"], TASKS["instructions"], PROSE)}
WAYS = [
    ("base", "agnostic"),
    ("base", "aware"),
    ("instructions", "agnostic"),
    ("instructions", "aware"),
    ("prose", "agnostic"),
]


def answer_by_family(
    model: LoadedModel, prompt: Prompt
) -> tuple[dict[tuple[str, int], tuple[Any, ...]], list[float]]:
    """Returns what each family leaves of a cache and answers from it, and how likely the right
    answers are."""
    trace = treat(
        model, [*OF_FAMILIES.values()], [0.4], prompt, rates=[0.2], levels=[Level("bits", 4.0)]
    )
    assert [branch.error for branch in trace.branches if branch.error] == []
    generations = decode(model, trace, 4, PLENTY, gold=True)
    told = {
        (one.branch.treatment.policy.name, one.question): (
            one.token_ids,
            one.ended,
            one.branch.treatment.level,
        )
        for one in generations
    }
    return told, [one.gold_nll or 0.0 for one in generations]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("task", "mode"), WAYS)
def test_every_family_on_every_kind_of_task(
    monkeypatch: pytest.MonkeyPatch, task: str, mode: Mode, dtype: torch.dtype
) -> None:
    kind = KINDS_OF_TASKS[task]
    prompt = build_prompts(toy_tokenizer(), kind, kind.example(0, 1), mode)[0]
    few = [replace(question, gold_ids=question.gold_ids[:6]) for question in prompt.questions[:2]]
    prompt = replace(prompt, questions=tuple(few))
    work_as(monkeypatch, "cuda")
    expected, likelihoods = answer_by_family(on_host(dtype), prompt)
    monkeypatch.undo()
    with pretended_cuda():
        actual, likelihoods_there = answer_by_family(on_card(dtype), prompt)
    assert {name for name, _ in expected} == {policy.name for policy in OF_FAMILIES.values()}
    assert actual == expected
    assert likelihoods_there == pytest.approx(likelihoods, rel=1e-4)


@pytest.mark.parametrize(
    "policies",
    ["snapkv,int4", "bitflip(rate=0.01),gaussian(phase=every_step,rate=0.1)", "h2o,kvzip"],
)
def test_a_cpu_that_works_in_the_portions_of_a_card_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policies: str
) -> None:
    """Of all values in the table of devices; answers of unlike lengths, some of which are read
    only."""
    job = job_of([policies], "base,prose", max_new_tokens=None)
    expected = tables_of(run(on_host(), job, tmp_path / "cpu"))["records"]
    work_as(monkeypatch, "cuda")
    actual = tables_of(run(on_host(), job, tmp_path / "portions"))["records"]
    assert (expected["status"] == "ok").all()
    for answer, other in zip(expected["output_token_ids"], actual["output_token_ids"], strict=True):
        assert answer.tolist() == other.tolist()
    assert actual["gold_nll"].tolist() == pytest.approx(
        expected["gold_nll"].tolist(), rel=1e-4, nan_ok=True
    )
