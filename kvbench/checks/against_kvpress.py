"""Runs the same grid through the engine and through kvpress's own pipeline, cell by cell, in one
process."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from kvpress import BasePress, KVPressTextGenerationPipeline
from transformers import Cache, PreTrainedTokenizerBase

from datasets_gen import Example, Question, Task
from kvbench.engine.decode.answers import check_logits, decode
from kvbench.engine.treat.branch import leaving_sliding_layers
from kvbench.engine.treat.plan import Treatment, plan
from kvbench.engine.treat.prefill import prefill
from kvbench.execution.local import Workers
from kvbench.experiments.catalogue import policies_for
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, attention
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import answer_ends, build_prompts, chat_template, ending, split_question
from kvbench.system.console import replaced
from kvbench.system.errors import first_line
from policies import Situation
from policies.declaration.draws import derive_seed, drawing_from

Cell = tuple[str, float, str]  # policy, ratio, question id


def is_handed_over_whole(model: LoadedModel, task: Task) -> bool:
    """Tells whether the pipeline gets head and ending of a prompt as text, since it would put
    others: it knows neither a system's turn, nor a cue for base models, nor one answer prefix for
    each question."""
    return task.role == "system" or task.begins_answers or model.tokenizer.chat_template is None


def as_written(tokenizer: PreTrainedTokenizerBase) -> AbstractContextManager[None]:
    """Replaces the chat template by one that puts nothing around its one turn."""
    return replaced(tokenizer, "chat_template", "{{ messages[0].content }}")


def texts_for_pipeline(
    model: LoadedModel, task: Task, questions: Sequence[Question], mode: Mode
) -> list[tuple[str, str]]:
    """Returns two texts for each question: one to compress behind the context, and one to
    decode."""
    template = chat_template(model.tokenizer, task.role)
    is_whole = is_handed_over_whole(model, task)
    texts: list[tuple[str, str]] = []
    for question in questions:
        compressed, decoded = split_question(template, task, question, mode)
        if is_whole:
            decoded += ending(template, task, question)
        texts.append((compressed, decoded))
    return texts


@dataclass
class PipelineComparison:
    """The engine and the pipeline over the same cells. Times exclude loading and one warm-up of
    each."""

    engine_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)  # of the pipeline, by policy
    cells: dict[Cell, bool] = field(default_factory=dict)  # whether every token is equal
    # Policy: why kvpress's pipeline could not run it.
    failed: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # policy: why the engine could not

    @property
    def unequal(self) -> list[Cell]:
        return [cell for cell, equal in self.cells.items() if not equal]


class SlidingPipeline(KVPressTextGenerationPipeline):
    """kvpress's pipeline for a model whose sliding layers presses leave whole, with what kvpress
    0.5.5 does otherwise there, or cannot do.

    It leaves these layers whole in the text model too (:func:`is_left_whole`). And where layers
    hold different numbers of rows, it passes the question token by token: transformers 5.2 masks
    every layer by the length of the first, which fails in the next. A single token needs no mask
    but that of the window; the eager attention wants one, and so the fused one writes answers."""

    def _forward(self, *arguments: Any, **options: Any) -> Any:
        with leaving_sliding_layers():
            return super()._forward(*arguments, **options)

    def generate_answer(
        self, question_ids: torch.Tensor, cache: Cache, context_length: int, max_new_tokens: int
    ) -> str:
        answer = super().generate_answer
        lengths = {cache.get_seq_length(layer) for layer in range(len(cache))}
        if len(lengths) == 1:
            return str(answer(question_ids, cache, context_length, max_new_tokens))
        last = context_length + question_ids.shape[1] - 1
        with attention(self.model, "sdpa"):
            for position, token in zip(range(context_length, last), question_ids[0], strict=False):
                ids = token.view(1, 1)
                positions = torch.tensor([[position]], device=question_ids.device)
                self.model(input_ids=ids, past_key_values=cache, position_ids=positions)
            return str(answer(question_ids[:, -1:], cache, last, max_new_tokens))


def build_pipeline(model: LoadedModel) -> KVPressTextGenerationPipeline:
    """Returns kvpress's own pipeline, as far as it can run the model."""
    pipeline = KVPressTextGenerationPipeline
    if any(model.windows):
        pipeline = SlidingPipeline
    # Without a device it would move the network to the first GPU of the machine, whatever was asked
    # for; and where accelerate has spread the weights it takes none.
    device: torch.device | None = model.device
    if getattr(model.network, "hf_device_map", None):
        device = None
    return pipeline(model=model.network, tokenizer=model.tokenizer, device=device)


class PipelineRunner:
    """Runs kvpress's pipeline, and keeps the token ids of the answers: it returns text alone."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.pipeline = build_pipeline(model)

    def answer(
        self,
        task: Task,
        context: str,
        questions: Sequence[str],
        press: BasePress,
        implementation: str,
    ) -> list[list[int]]:
        """Returns the token ids of every answer up to its end token. The pipeline ignores an end
        token in first place and goes on; these tokens are dropped here. It is given the tokens that
        end a begun answer too, or it would write on and take longer; behind an initial ("A. F.") it
        then ends where the engine goes on."""
        recorded: list[list[int]] = []
        tokenizer = self.pipeline.tokenizer
        config = self.pipeline.model.generation_config
        original: Callable[..., Any] = tokenizer.decode

        def decode_and_keep(ids: torch.Tensor, **options: Any) -> Any:
            recorded.append(ids.tolist())
            return original(ids, **options)

        ends = answer_ends(self.model.tokenizer, task)
        stops = config.eos_token_id
        if ends.tokens:
            stops = [*self.model.end_tokens(), *ends.tokens, *ends.sentence]
        template: AbstractContextManager[None] = nullcontext()
        if is_handed_over_whole(self.model, task):
            template = as_written(tokenizer)
        with (
            replaced(tokenizer, "decode", decode_and_keep),
            replaced(config, "eos_token_id", stops),
            template,
            attention(self.model.network, implementation),
        ):
            self.pipeline(
                context, questions=list(questions), press=press, max_new_tokens=task.max_new_tokens
            )
        every_end = ends.with_tokens(self.model.end_tokens())
        return [every_end.until_end(ids)[0] for ids in recorded]


def compare(
    model: LoadedModel,
    work: Sequence[tuple[Task, Example]],
    grid: Grid,
    progress: Callable[[int], object] = lambda _: None,
) -> PipelineComparison:
    """Runs every cell both ways and compares every token; the first example warms both up, untimed.
    The engine has as many processes as a run would have by default; the pipeline has one, with all
    threads. ``progress`` is called with the number of questions just answered."""
    runner = PipelineRunner(model)
    comparison = PipelineComparison(seconds={policy.name: 0.0 for policy in grid.policies})
    # Of a model that overflows, the engine fails every cell and the pipeline answers with anything.
    check_logits(model, build_prompts(model.tokenizer, *work[0], grid.mode)[0])
    warm_up = replace(grid, policies=grid.policies[:1], points=grid.points[:1])
    _run_pipeline(runner, *work[0], warm_up, PipelineComparison(), lambda _: None)
    # The whole first example, which touches memory for the first time.
    _run_engine(model, *work[0], grid)
    workers = Workers(model, len(work))
    share = grid.shared_by(workers.count, model.device)

    def run_engine(
        worker_model: LoadedModel, pair: tuple[Task, Example]
    ) -> tuple[dict[Cell, list[int]], dict[str, str]]:
        return _run_engine(worker_model, *pair, share)

    started = model.clock()
    with workers.map(run_engine, work) as results:
        answers = list(results)
    comparison.engine_seconds = model.clock() - started
    for (task, example), (ours, errors) in zip(work, answers, strict=True):
        comparison.errors = errors | comparison.errors
        theirs = _run_pipeline(runner, task, example, grid, comparison, progress)
        # The pipeline ends an answer behind an initial ("A. F."), where the engine goes on: they
        # are compared up to it.
        ends = replace(answer_ends(model.tokenizer, task), initials=())
        for cell, ids in theirs.items():
            comparison.cells[cell] = False
            if cell in ours:
                our_answer, _ = ends.until_end(ours[cell])
                their_answer, _ = ends.until_end(ids)
                comparison.cells[cell] = our_answer == their_answer
    return comparison


def _run_engine(
    model: LoadedModel, task: Task, example: Example, grid: Grid
) -> tuple[dict[Cell, list[int]], dict[str, str]]:
    """Does for one example the whole work of the pipeline; returns the answers, and why policies
    failed."""
    answers: dict[Cell, list[int]] = {}
    errors: dict[str, str] = {}
    for prompt in build_prompts(model.tokenizer, task, example, grid.mode):
        policies = policies_for(grid.policies, task, grid.mode)
        trace = prefill(model, prompt, plan(policies, grid.points, prompt, grid.seed))
        generations = decode(model, trace, task.max_new_tokens, grid.max_kv_bytes)
        for branch in trace.branches:
            if branch.error:
                errors.setdefault(branch.treatment.policy.name, branch.error)
        for generation in generations:
            treatment = generation.branch.treatment
            question = prompt.questions[generation.question].question
            cell = (treatment.policy.name, treatment.ratio, question.id)
            answers[cell] = list(generation.token_ids)
    return answers, errors


def _run_pipeline(
    runner: PipelineRunner,
    task: Task,
    example: Example,
    grid: Grid,
    comparison: PipelineComparison,
    progress: Callable[[int], object],
) -> dict[Cell, list[int]]:
    """Calls the pipeline once for each cell, with the press as a user of kvpress would build it."""
    answers: dict[Cell, list[int]] = {}
    policies = policies_for(grid.policies, task, grid.mode)
    for prompt in build_prompts(runner.model.tokenizer, task, example, grid.mode):
        for scoring in plan(policies, grid.points, prompt, grid.seed):
            for treatment in scoring:
                questions = [prompt.questions[number].question for number in treatment.questions]
                name = treatment.policy.name
                started = runner.model.clock()
                parts = texts_for_pipeline(runner.model, task, questions, grid.mode)
                try:
                    ids = _answer_cell(runner, task, example.context, parts, treatment)
                except Exception as error:  # a press is foreign code and may raise anything
                    reason = f"{type(error).__name__}: {first_line(error)}"
                    comparison.failed.setdefault(name, reason)
                    ids = []
                seconds = comparison.seconds.get(name, 0.0)
                comparison.seconds[name] = seconds + runner.model.clock() - started
                for question, answer in zip(questions, ids, strict=name not in comparison.failed):
                    answers[name, treatment.ratio, question.id] = answer
                progress(len(questions))
    return answers


def _answer_cell(
    runner: PipelineRunner,
    task: Task,
    context: str,
    parts: Sequence[tuple[str, str]],
    treatment: Treatment,
) -> list[list[int]]:
    """Answers one cell. ``parts``: of each question a text to compress, the same for all, and one
    to decode."""
    policy = treatment.policy
    # Where the engine runs a form of its own, as of h2o, it is compared with the press that kvpress
    # ships, under the attention that this one needs.
    build: Callable[[Situation], Any] = policy.press
    implementation = "sdpa"
    if policy.baseline:
        build = policy.baseline.build
        implementation = policy.baseline.attention
    questions = [decoded for _, decoded in parts]
    compressed, _ = parts[0]
    context += compressed
    if is_handed_over_whole(runner.model, task):
        context = chat_template(runner.model.tokenizer, task.role).head + context
    if not policy.while_decoding:
        return runner.answer(task, context, questions, build(treatment.situation), implementation)
    answers: list[list[int]] = []
    situation = treatment.situation
    # The pipeline takes one question at a time.
    for number, question in zip(treatment.questions, questions, strict=True):
        # The seed that the engine draws from for this answer (repeatable_draws).
        seed = derive_seed(situation.seed, situation.example_id, f"answer {number}")
        with drawing_from(seed, runner.model.device):
            answers += runner.answer(task, context, [question], build(situation), implementation)
    return answers
