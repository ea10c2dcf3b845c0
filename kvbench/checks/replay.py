"""Answers whole contexts of a stored run again and compares their records.

All policies and levels of the run treat a context together, as they did in the run: a branch that
is answered in other company stands in another batch, whose sums are rounded in another order. In
bfloat16 that alone changed 19 of 186 answers of SmolLM2, and likelihoods by up to 0.29 nats; a
context that is answered whole is mostly the same to the bit."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel

from datasets_gen import Example, Task
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Step, greedy
from kvbench.engine.time_limit import NumericsOptions
from kvbench.engine.treat.branch import lazy_donor
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import answer_text, build_prompts
from kvbench.store.run_file import Identity
from kvbench.store.scoring import OUTCOMES, SCORES, outcome_scores
from kvbench.store.store import Store
from kvbench.store.tables import Record, StoredTable
from leaderboards.metrics import Outcome
from policies import FULL, Level, Point, Policy, list_points

Key = tuple[str, Point, str]  # policy, level and draw, question
CLOSE = 1e-4  # of all other numbers: they follow from the prefill, which no other branch shares


@dataclass(frozen=True)
class Tolerance:
    """Says how far a sound run may be from its replay, where the two were computed in batches of
    another size."""

    nats: float  # of the likelihood of a right answer
    share: float  # likewise, of the likelihood itself: both together
    tie: float  # nats by which the most likely token may lead one that was written


# Measured on cells of runs at four to six ratios, each answered alone, where its whole context
# would have been exact: base on `reference` (144 answers a dtype) and SmolLM2 (186 in bfloat16).
# Likelihoods of up to 24 nats moved by at most 1.3e-5 in float32, 0.016 in float16 (of 21 nats;
# 0.014 of 10) and 0.29 in bfloat16 (of 8.3; 0.28 of 6.3), in the mean by 9e-7, 0.001 and 0.02. 19
# of the 186 answers parted, none of `reference`; of 24 stored ones that SmolLM2 wrote again alone
# one was behind, by 0.875 nats: a tie is a little wider, and in float16, whose numbers are 8 times
# finer, an eighth of that. A forged answer, that of the full cache under another policy's name, is
# behind by 8.7 nats in the median; the nearest two by 0.78 and 0.94, which are ties themselves.
TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(1e-4, 1e-4, 1e-3),
    "float16": Tolerance(0.01, 0.01, 0.125),
    "bfloat16": Tolerance(0.05, 0.05, 1.0),
}
OF_LIKELIHOOD = {"gold_nll": 1, "delta_nll": 2}  # how many likelihoods each is made of
# They follow from the tokens of an answer. Behind a press that acts while it is written, so does
# what is left.
OF_TOKENS = {"output_text", "output_token_ids", "ended", "next_token_accuracy", *SCORES, *OUTCOMES}
OF_ROWS = {"realised_ratio", "kept_tokens", "kv_bytes"}


def is_close(name: str, stored: Any, made: Any, tolerance: Tolerance) -> bool:
    """Tells whether a stored value is the one that was made again, as far as rounding lets it."""
    if times := OF_LIKELIHOOD.get(name, 0):
        return _agree(stored, made, times * tolerance.nats, times * tolerance.share)
    return _agree(stored, made, CLOSE, CLOSE)


def _agree(stored: Any, made: Any, least: float, share: float, nan_agrees: bool = False) -> bool:
    """Tells whether numbers, also in lists, differ by no more than a least amount and a share; all
    else is equal."""
    if isinstance(made, list) and isinstance(stored, list):
        if len(made) != len(stored):
            return False
        pairs = zip(stored, made, strict=True)
        return all(_agree(*pair, least, share, nan_agrees) for pair in pairs)
    if not isinstance(made, float) or not isinstance(stored, int | float):
        return bool(stored == made)
    if nan_agrees and math.isnan(stored) and math.isnan(made):
        return True
    return stored == made or abs(stored - made) <= least + share * abs(made)


@dataclass
class Replay:
    """Answers contexts of a run again."""

    store: Store
    model: LoadedModel
    tasks: Mapping[str, Task]
    policies: Mapping[str, Policy]  # of the run, those that can be run here
    compared: Collection[str]  # columns of a record
    tables: Sequence[StoredTable] = ()  # of studies, whose rows are made again and compared too
    ties: int = 0  # answers that part where two tokens are as likely
    tolerance: Tolerance = field(init=False)

    def __post_init__(self) -> None:
        self.tolerance = TOLERANCES[self.identity.dtype]

    @property
    def identity(self) -> Identity:
        return self.store.identity

    def task(self, name: str) -> Task:
        longest = next(task.max_new_tokens for task in self.identity.tasks if task.name == name)
        return replace(self.tasks[name], max_new_tokens=longest)

    def faults(self, name: str, example: Example, records: Sequence[Record]) -> Iterator[str]:
        """Answers a context with all policies of the run that are here, and names each record of it
        that differs."""
        task, identity = self.task(name), self.identity
        setting = Setting(
            *self._company(name),
            identity.seed,
            identity.mode,
            scope=identity.scope,
            numerics=NumericsOptions.from_texts(identity.options),
            tables=tuple(table.name for table in self.tables),
        )
        donor = partial(
            Grid([(task, example.index + 1)], setting, self.identity.held_out).donor, task
        )
        rows = collect(self.model, task, [example], setting, donor)
        made = {_key(record): record for record in rows.records}
        full = {
            record.question_id: record.output_token_ids
            for record in records
            if record.policy == FULL
        }
        alike = set[Key]()
        for record in records:
            if (again := made.get(_key(record))) is None:
                continue
            yield from self._differences(task, example, record, again, full.get(record.question_id))
            if record.output_token_ids == again.output_token_ids:
                alike.add(_key(record))
        for table in self.tables:
            yield from self._table_faults(table, name, alike, rows.tables.get(table.name, []))

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
        for key in sorted({*stored} ^ {*again}, key=str):
            state = "is missing" if key in again else "is not made again"
            yield f"{table.name}: the row {_row_text(key)} {state}"
        for key in stored.keys() & again.keys():
            for column, value in again[key].items():
                # A study notes what overflows as NaN.
                before = stored[key][column]
                if not _agree(before, value, CLOSE, self.tolerance.share, nan_agrees=True):
                    values = f"{column} is {before!r:.60}, made again it is {value!r:.60}"
                    yield f"{table.name}: in the row {_row_text(key)} {values}"
                    break

    def _company(self, name: str) -> tuple[list[Policy], tuple[Point, ...]]:
        """Returns the policies that the run had on a task, each at its own levels, and all of these
        levels."""
        policies: list[Policy] = []
        levels: dict[Level, None] = {}
        repeats = 1
        for planned in self.identity.policies:
            if name not in planned.tasks or planned.name not in self.policies:
                continue
            policy = self.policies[planned.name]
            if policy.kinds:
                of_policy = list[Level]()
                for kind, values in planned.levels.items():
                    of_policy += [Level(kind, value) for value in values]
                policy = replace(policy, only=tuple(of_policy))
                levels |= dict.fromkeys(of_policy)
            policies.append(policy)
            repeats = max(repeats, planned.repeats)
        return policies, list_points(levels, repeats)

    def _differences(
        self, task: Task, example: Example, stored: Record, made: Record, full: list[int] | None
    ) -> Iterator[str]:
        """Names the first value that is not as it is made again."""
        values = made.model_dump(include={*self.compared})
        policy = self.policies[stored.policy]
        if (
            full is not None and not policy.corrupts
        ):  # what is damaged may make numbers that no token tells of
            outcome = outcome_scores(Outcome(stored.output_token_ids == full, bool(stored.ended)))
            values |= {name: value for name, value in outcome.items() if name in values}
        if (
            stored.output_token_ids != made.output_token_ids
            and self.lead(task, example, stored) <= self.tolerance.tie
        ):
            self.ties += 1
            follow = OF_TOKENS - set(OUTCOMES) | (OF_ROWS if policy.while_decoding else set())
            values = {name: value for name, value in values.items() if name not in follow}
        for name, value in values.items():
            if not is_close(name, getattr(stored, name), value, self.tolerance):
                where = f"{stored.policy} at {stored.point.where}, {stored.question_id}"
                yield f"{where}: {name} is {getattr(stored, name)!r:.60}, made again it is {value!r:.60}"
                return

    def lead(self, task: Task, example: Example, stored: Record) -> float:
        """Has the model write the tokens of a stored answer, and returns by how many nats at most
        another token is more likely than the one that was stored; infinite where text or end are
        not those of the tokens."""
        tokens = stored.output_token_ids or []
        prompts = build_prompts(self.model.tokenizer, task, example, self.identity.mode)
        prompt, number = next(
            (prompt, number)
            for prompt in prompts
            for number, question in enumerate(prompt.questions)
            if question.question.id == stored.question_id
        )
        ends = prompt.ends.with_tokens(self.model.end_tokens())
        until_end, ended = ends.until_end(tokens)
        is_whole = (
            list(until_end) == tokens
            and ended == stored.ended
            and (ended or len(tokens) == task.max_new_tokens)
        )
        if not is_whole or answer_text(self.model.tokenizer, tokens) != stored.output_text:
            return math.inf
        leads: list[float] = []

        def as_stored(step: Step) -> torch.Tensor:
            chosen = greedy(step)
            for place, answer in enumerate(step.answers):
                if answer.question == number and not answer.forced and step.number < len(tokens):
                    chosen[place] = tokens[step.number]
                    leads.append(
                        float(step.logits[place].max() - step.logits[place, tokens[step.number]])
                    )
            return chosen

        grid = Grid(
            [(task, example.index + 1)], Setting([], (), self.identity.seed), self.identity.held_out
        )
        donor = lazy_donor(
            self.model,
            lambda: build_prompts(
                self.model.tokenizer, task, grid.donor(task, example), self.identity.mode
            )[0],
        )
        scorings = plan(
            [self.policies[stored.policy]], (stored.point,), prompt, self.identity.seed, None, donor
        )
        trace = prefill(
            self.model, prompt, [scoring for scoring in scorings if number in scoring[0].questions]
        )
        decode(self.model, trace, task.max_new_tokens, None, as_stored)
        return max(leads) if len(leads) == len(tokens) > 0 else math.inf


def _key(record: Record) -> Key:
    return record.policy, record.point, record.question_id


def _answer_key(row: Mapping[str, Any]) -> Key:
    """Returns the key of the answer that a row of a study's table belongs to."""
    return (
        row["policy"],
        Point(Level(row["level_kind"], row["level"]), row["repeat"]),
        row["question_id"],
    )


def _row_key(table: StoredTable, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)


def _row_text(key: Sequence[Any]) -> str:
    return ", ".join(map(str, key))
