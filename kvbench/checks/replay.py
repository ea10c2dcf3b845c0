"""Answers whole contexts of a stored run again and compares their records.

All policies and levels of the run treat a context together, as they did in the run: a branch that
is answered in other company stands in another batch, whose sums are rounded in another order. In
bfloat16 that alone changed 19 of 186 answers of SmolLM2, and likelihoods by up to 0.29 nats; a
context that is answered whole is mostly the same to the bit."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from pydantic import BaseModel

from datasets_gen import Example, Task
from kvbench.checks.findings import other_value
from kvbench.checks.handed_in import name_answer
from kvbench.checks.tolerance import (
    CLOSE,
    OF_OTHER_KERNELS,
    OF_ROWS,
    OF_STEPS,
    TOLERANCES,
    Tolerance,
    agree,
    is_close,
)
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Step, greedy
from kvbench.engine.time_limit import NumericsOptions, TimeLimit
from kvbench.engine.treat.branch import lazy_donor
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid, planned_on
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt, answer_text, build_prompts
from kvbench.store.run_file import Identity
from kvbench.store.scoring import OUTCOMES, SCORES, outcome_scores
from kvbench.store.store import Store
from kvbench.store.tables import Record, RowsByTable, StoredTable
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import Outcome
from policies import FULL, Level, Point, Policy

Key = tuple[str, Point, str]  # policy, level and draw, question
# They follow from the tokens of an answer. Behind a press that acts while it is written, so does
# what is left.
OF_TOKENS = {"output_text", "output_token_ids", "ended", "next_token_accuracy", *SCORES, *OUTCOMES}
# Of the likelihoods, those that are the same to the bit where one kernel computed both, in the same
# company: measured 78 to 100 % (55 of 55, 50 of 51, 25 of 30, 35 of 45). Where another one did it
# were 0 to 42 %, and none of a piece whose policies had been answered in two runs.
LEAST_ALIKE = 0.75


@dataclass(frozen=True)
class Comparison:
    """Says what of a run is compared with what is made again."""

    columns: Collection[str]  # of a record
    tolerance: Tolerance
    tables: Sequence[StoredTable] = ()  # of studies, whose rows are compared too


@dataclass(frozen=True)
class AnsweredContext:
    """A context with its stored records, and what is made of it again."""

    task: Task
    example: Example
    stored: Sequence[Record]
    again: RowsByTable

    @cached_property
    def pairs(self) -> Sequence[tuple[Record, Record]]:
        """Lists each stored record with the one that was made again; of those that failed now,
        none."""
        records_again = {_key(record): record for record in self.again.records}
        pairs = []
        for record in self.stored:
            again = records_again.get(_key(record))
            if again is not None and again.status == "ok":
                pairs.append((record, again))
        return pairs


@dataclass
class Replay:
    """Answers contexts of a run again."""

    store: Store
    model: LoadedModel
    tasks: Mapping[str, Task]
    policies: Mapping[str, Policy]  # of the run, those that can be run here
    contexts: list[AnsweredContext] = field(default_factory=list)
    time_limit: TimeLimit = field(init=False)  # that of the run
    ties: int = 0  # answers that part where two tokens are as likely; of the last comparison

    def __post_init__(self) -> None:
        job = self.store.run.job
        self.time_limit = TimeLimit(job.cell_seconds) if job else TimeLimit()

    @property
    def tolerance(self) -> Tolerance:
        return TOLERANCES[self.identity.dtype]

    @property
    def tolerance_elsewhere(self) -> Tolerance:
        return OF_OTHER_KERNELS[self.identity.dtype]

    @property
    def identity(self) -> Identity:
        return self.store.identity

    def task(self, name: str) -> Task:
        # A run may have been given shorter or longer answers than the task has by itself.
        longest = next(task.max_new_tokens for task in self.identity.tasks if task.name == name)
        return replace(self.tasks[name], max_new_tokens=longest)

    def answer(
        self,
        name: str,
        example: Example,
        records: Sequence[Record],
        tables: Sequence[StoredTable] = (),
    ) -> None:
        """Answers a context with all policies of the run that are here, and makes its rows of some
        tables again."""
        task = self.task(name)
        identity = self.identity
        policies, points = planned_on(identity, name, self.policies)
        grid = Grid(
            [(task, example.index + 1)],
            policies,
            points,
            identity.seed,
            identity.mode,
            scope=identity.scope,
            time_limit=self.time_limit,
            numerics=NumericsOptions.from_texts(identity.options),
            tables=tuple(table.name for table in tables),
            held_out=identity.held_out,
        )
        again = collect(self.model, task, [example], grid)
        self.contexts.append(AnsweredContext(task, example, records, again))

    def faults(self, comparison: Comparison) -> list[str]:
        """Names each record, and each row of a study's table, that differs from what was made
        again."""
        self.ties = 0
        faults: list[str] = []
        for context in self.contexts:
            faults += self._context_faults(context, comparison)
        return faults

    def is_rounded_alike(self) -> bool:
        """Tells whether the likelihoods are those of the run to the bit, but for a few: then the
        same kernels computed both. Those that differ by more than rounding tell nothing of it, and
        without any it is not known."""
        alike = others = 0
        for context in self.contexts:
            for stored, again in context.pairs:
                likelihoods = stored.gold_nll, again.gold_nll
                if None in likelihoods:
                    continue
                if stored.gold_nll == again.gold_nll:
                    alike += 1
                elif is_close("gold_nll", *likelihoods, self.tolerance):
                    others += 1
        return alike > 0 and alike >= LEAST_ALIKE * (alike + others)

    def failed(self) -> list[str]:
        """Says of each answer that failed now, and not in the run, why it did."""
        reasons = []
        for context in self.contexts:
            keys = {_key(record) for record in context.stored}
            for record in context.again.records:
                if record.status == "failed" and _key(record) in keys:
                    reasons.append(f"{name_answer(record)}: {record.reason}")
        return reasons

    def _context_faults(self, context: AnsweredContext, comparison: Comparison) -> Iterator[str]:
        full: dict[str, list[int] | None] = {}
        for record in context.stored:
            if record.policy == FULL:
                full[record.question_id] = record.output_token_ids
        alike: set[Key] = set()
        for record, again in context.pairs:
            full_tokens = full.get(record.question_id)
            yield from self._differences(context, record, again, comparison, full_tokens)
            if record.output_token_ids == again.output_token_ids:
                alike.add(_key(record))
        for table in comparison.tables:
            rows = context.again.tables.get(table.name, [])
            yield from self._table_faults(table, context.task.name, alike, rows)

    def _table_faults(
        self, table: StoredTable, name: str, alike: Collection[Key], rows: Sequence[BaseModel]
    ) -> Iterator[str]:
        """Names each row of a study's table that is not as it is made again, of the answers that
        are alike."""
        stored: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for path in self.store.files(table):
            if not path.is_relative_to(self.store.folder / table.name / name):
                continue
            for row in self.store.read(table, path).to_pylist():
                if _answer_key(row) in alike:
                    stored[_row_key(table, row)] = row
        again: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for model_of_row in rows:
            row = model_of_row.model_dump()
            if _answer_key(row) in alike:
                again[_row_key(table, row)] = row
        # In one of the two alone; those of both are compared below.
        for key in sorted({*stored} ^ {*again}, key=str):
            state = "is missing" if key in again else "is not made again"
            yield f"{table.name}: the row {_row_text(key)} {state}"
        for key in stored.keys() & again.keys():
            for column, value in again[key].items():
                # A study notes what overflows as NaN.
                before = stored[key][column]
                if not agree(before, value, CLOSE, self.tolerance.share, nan_agrees=True):
                    values = other_value(column, before, value)
                    yield f"{table.name}: in the row {_row_text(key)} {values}"
                    break

    def _differences(
        self,
        context: AnsweredContext,
        stored: Record,
        again: Record,
        comparison: Comparison,
        full: list[int] | None,
    ) -> Iterator[str]:
        """Names the first value that is not as it is made again."""
        values = again.model_dump(include={*comparison.columns})
        policy = self.policies[stored.policy]
        # What is damaged may make numbers that no token tells of.
        if full is not None and not policy.treatment.corrupts:
            # Against the full cache's answer of the run: today's may itself part from that at a
            # tie.
            outcome = Outcome(stored.output_token_ids == full, bool(stored.ended))
            for name, value in outcome_scores(outcome).items():
                if name in values:
                    values[name] = value
        tolerance = comparison.tolerance
        if policy.treatment.stored_bytes is not None:
            tolerance = tolerance.at_least(OF_STEPS)
        has_other_tokens = stored.output_token_ids != again.output_token_ids
        if has_other_tokens and self.lead(context, stored) <= tolerance.tie:
            self.ties += 1
            for name in OF_TOKENS - set(OUTCOMES):
                values.pop(name, None)
            if policy.while_decoding:
                for name in OF_ROWS:
                    values.pop(name, None)
        for name, value in values.items():
            before = getattr(stored, name)
            if not is_close(name, before, value, tolerance):
                yield f"{name_answer(stored)}: {other_value(name, before, value)}"
                return

    def lead(self, context: AnsweredContext, stored: Record) -> float:
        """Has the model write the tokens of a stored answer, and returns by how many nats at most
        another token is more likely than the one that was stored; infinite where text or end are
        not those of the tokens."""
        task, example = context.task, context.example
        tokens = stored.output_token_ids or []
        prompt, number = self._prompt_with(task, example, stored.question_id)
        ends = prompt.ends.with_tokens(self.model.end_tokens())
        until_end, ended = ends.until_end(tokens)
        is_cut = list(until_end) != tokens or ended != stored.ended
        # An answer without an end has all the tokens that it may have, or somebody cut it.
        is_unfinished = not ended and len(tokens) != task.max_new_tokens
        if is_cut or is_unfinished:
            return math.inf
        if answer_text(self.model.tokenizer, tokens) != stored.output_text:
            return math.inf
        leads: list[float] = []

        def as_stored(step: Step) -> torch.Tensor:
            chosen = greedy(step)
            if step.number >= len(tokens):
                return chosen
            token = tokens[step.number]
            for place, answer in enumerate(step.answers):
                if answer.question == number and not answer.forced:
                    chosen[place] = token
                    logits = step.logits[place]
                    # Logits of one row differ as their log probabilities do, which is in nats.
                    leads.append(float(logits.max() - logits[token]))
            return chosen

        seed = self.identity.seed
        # It is asked for the donor alone, whose context a distractor takes rows of.
        grid = Grid([(task, example.index + 1)], [], (), seed, held_out=self.identity.held_out)

        def donor_prompt() -> Prompt:
            donor = grid.donor(task, example)
            return build_prompts(self.model.tokenizer, task, donor, self.identity.mode)[0]

        policies = [self.policies[stored.policy]]
        donor = lazy_donor(self.model, donor_prompt)
        scorings = plan(policies, (stored.point,), prompt, self.identity.seed, None, donor)
        scorings = [scoring for scoring in scorings if number in scoring[0].questions]
        trace = prefill(self.model, prompt, scorings)
        decode(self.model, trace, task.max_new_tokens, None, as_stored)
        # A stored token that was never weighed, as of a branch that fails here, has nothing to
        # speak for it.
        if not tokens or len(leads) != len(tokens):
            return math.inf
        return max(leads)

    def _prompt_with(self, task: Task, example: Example, question_id: str) -> tuple[Prompt, int]:
        """Finds the prompt that asks a question, and the number of the question in it."""
        prompts = build_prompts(self.model.tokenizer, task, example, self.identity.mode)
        for prompt in prompts:
            for number, question in enumerate(prompt.questions):
                if question.question.id == question_id:
                    return prompt, number
        raise KVBenchError(f"no prompt of {example.id} asks {question_id}")


def _key(record: Record) -> Key:
    return record.policy, record.point, record.question_id


def _answer_key(row: Mapping[str, Any]) -> Key:
    """Returns the key of the answer that a row of a study's table belongs to."""
    level = Level(row["level_kind"], row["level"])
    return row["policy"], Point(level, row["repeat"]), row["question_id"]


def _row_key(table: StoredTable, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)


def _row_text(key: Sequence[Any]) -> str:
    return ", ".join(map(str, key))
