"""The same grid through the engine and through kvpress's own pipeline, cell by cell, in one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from kvpress import BasePress, KVPressTextGenerationPipeline

from datasets_gen import Example, Task
from kvbench.engine.decode import decode, until_end
from kvbench.engine.prefill import prefill
from kvbench.engine.treatment import Treatment, plan
from kvbench.models import LoadedModel
from kvbench.prompt import Mode, build_prompts, instruction_text, question_text
from policies import Policy

Cell = tuple[str, float, str]  # policy, ratio, question id


@dataclass
class PolicyComparison:
    """Seconds of kvpress's pipeline and how many generations were compared and equal, for one policy."""

    pipeline_seconds: float = 0.0
    compared: int = 0
    equal: int = 0


@dataclass
class Comparison:
    """Both ways over the same cells. Times exclude loading and one warm-up of each way."""

    engine_seconds: float = 0.0
    policies: dict[str, PolicyComparison] = field(default_factory=dict)
    unequal: list[Cell] = field(default_factory=list)

    @property
    def pipeline_seconds(self) -> float:
        return sum(policy.pipeline_seconds for policy in self.policies.values())

    @property
    def compared(self) -> int:
        return sum(policy.compared for policy in self.policies.values())

    @property
    def equal(self) -> int:
        return sum(policy.equal for policy in self.policies.values())

    @property
    def speedup(self) -> float:
        return self.pipeline_seconds / self.engine_seconds


class PipelineRunner:
    """kvpress's ``KVPressTextGenerationPipeline``, with the token ids that it decodes kept.

    The pipeline returns text alone; the ids are read where it hands them to the tokenizer.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.pipeline = KVPressTextGenerationPipeline(model=model.network, tokenizer=model.tokenizer)

    def answer(
        self, context: str, questions: Sequence[str], press: BasePress, attention: str, steps: int
    ) -> list[list[int]]:
        """Token ids of every answer up to its end token. The pipeline passes over an end token in first place and goes
        on; what follows it is dropped here."""
        recorded: list[list[int]] = []
        with self._recording(recorded), self._attention(attention):
            self.pipeline(context, questions=list(questions), press=press, max_new_tokens=steps)
        ends = set(self.model.end_tokens())
        return [until_end(ids, ends) for ids in recorded]

    @contextmanager
    def _recording(self, into: list[list[int]]) -> Iterator[None]:
        tokenizer = self.pipeline.tokenizer
        original: Callable[..., Any] = tokenizer.decode

        def decode_and_keep(ids: torch.Tensor, **options: Any) -> Any:
            into.append(ids.tolist())
            return original(ids, **options)

        tokenizer.decode = decode_and_keep
        try:
            yield
        finally:
            del tokenizer.decode

    @contextmanager
    def _attention(self, name: str) -> Iterator[None]:
        network = self.model.network
        before = network.config._attn_implementation
        network.set_attn_implementation(name)
        try:
            yield
        finally:
            network.set_attn_implementation(before)


def compare(
    model: LoadedModel,
    work: Sequence[tuple[Task, Example]],
    policies: Sequence[Policy],
    ratios: Sequence[float],
    seed: int,
    mode: Mode,
    max_kv_bytes: int,
    progress: Callable[[int], None],
) -> Comparison:
    """Runs every cell both ways and compares every token; the first example warms both up, untimed."""
    runner = PipelineRunner(model)
    comparison = Comparison(policies={policy.name: PolicyComparison() for policy in policies})
    _run_engine(model, *work[0], policies, ratios[:1], seed, mode, max_kv_bytes)
    _run_pipeline(runner, *work[0], policies[:1], ratios[:1], seed, mode, Comparison(), lambda count: None)
    for task, example in work:
        started = model.clock()
        ours = _run_engine(model, task, example, policies, ratios, seed, mode, max_kv_bytes)
        comparison.engine_seconds += model.clock() - started
        theirs = _run_pipeline(runner, task, example, policies, ratios, seed, mode, comparison, progress)
        for cell, ids in theirs.items():
            counted = comparison.policies[cell[0]]
            counted.compared += 1
            counted.equal += ours[cell] == ids
            if ours[cell] != ids:
                comparison.unequal.append(cell)
    return comparison


def _run_engine(
    model: LoadedModel,
    task: Task,
    example: Example,
    policies: Sequence[Policy],
    ratios: Sequence[float],
    seed: int,
    mode: Mode,
    max_kv_bytes: int,
) -> dict[Cell, list[int]]:
    """Prompts, prefill, treatment and decode of one example: all that the pipeline does too."""
    answers: dict[Cell, list[int]] = {}
    for prompt in build_prompts(model.tokenizer, task, example, mode):
        trace = prefill(model, prompt, plan(policies, ratios, prompt, seed))
        for generation in decode(model, trace, task.max_new_tokens, max_kv_bytes):
            treatment = generation.branch.treatment
            question = prompt.asks[generation.ask].question
            answers[treatment.policy.name, treatment.ratio, question.id] = list(generation.token_ids)
    return answers


def _run_pipeline(
    runner: PipelineRunner,
    task: Task,
    example: Example,
    policies: Sequence[Policy],
    ratios: Sequence[float],
    seed: int,
    mode: Mode,
    comparison: Comparison,
    progress: Callable[[int], None],
) -> dict[Cell, list[int]]:
    """One call of the pipeline for each cell, with the press as a user of kvpress would build it."""
    answers: dict[Cell, list[int]] = {}
    for prompt in build_prompts(runner.model.tokenizer, task, example, mode):
        for scoring in plan(policies, ratios, prompt, seed):
            for treatment in scoring.treatments:
                questions = [prompt.asks[number].question for number in treatment.asks]
                started = runner.model.clock()
                ids = _answer_cell(
                    runner, task, example.context, [question_text(q) for q in questions], treatment, mode
                )
                counted = comparison.policies.setdefault(treatment.policy.name, PolicyComparison())
                counted.pipeline_seconds += runner.model.clock() - started
                for question, answer in zip(questions, ids, strict=True):
                    answers[treatment.policy.name, treatment.ratio, question.id] = answer
                progress(len(questions))
    return answers


def _answer_cell(
    runner: PipelineRunner, task: Task, context: str, questions: list[str], treatment: Treatment, mode: Mode
) -> list[list[int]]:
    policy = treatment.policy
    build = policy.baseline.build if policy.baseline else policy.press
    attention = policy.baseline.attention if policy.baseline else "sdpa"
    instruction = instruction_text(task)
    if mode == "aware":
        context, questions = context + questions[0], [""]
    asked = [question + instruction for question in questions]
    return runner.answer(context, asked, build(treatment.situation), attention, task.max_new_tokens)
