"""The plan of a prefilled context: policies by levels and repeats, and the questions that each
branch answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from datasets_gen import TASKS
from kvbench.engine.time_limit import TimeLimit
from kvbench.prompts.prompt import Prompt
from policies import FULL, POLICIES, Level, Point, Policy, Situation
from policies.declaration.draws import derive_seed
from policies.declaration.policy import Donor

CALIBRATION_TEXTS = 8


@dataclass(frozen=True)
class Treatment:
    """Describes one policy at one level on one prompt."""

    policy: Policy
    situation: Situation
    questions: tuple[int, ...]  # their numbers in the prompt
    time_limit: TimeLimit  # of its press
    repeat: int = 0  # which draw of a random policy
    reference: bool = (
        False  # it is the full cache that others are compared with, and no result by itself
    )

    @property
    def level(self) -> Level:
        return self.situation.level

    @property
    def ratio(self) -> float:
        """Returns the share of the context to remove; 0 for a policy that removes no tokens."""
        return self.situation.ratio


# Of one policy and draw, which differ in nothing but the level; one at least.
Scoring = tuple[Treatment, ...]


@cache
def calibration_texts() -> tuple[str, ...]:
    """Returns prose that no test shows, for presses that look at a model before they look at a
    context."""
    examples = TASKS["long_context"].generate(0, CALIBRATION_TEXTS, "train")
    return tuple(example.context for example in examples)


def plan(
    policies: Sequence[Policy],
    points: Sequence[Point],
    prompt: Prompt,
    seed: int,
    time_limit: TimeLimit | None = None,
    donor: Callable[[], Donor] | None = None,
) -> list[Scoring]:
    """Lists all treatments of a prompt, grouped so that one scoring may serve all levels of a
    group. ``donor`` reads another context of the task."""
    time_limit = time_limit or TimeLimit()
    everything = tuple(range(len(prompt.questions)))
    scorings: list[Scoring] = []
    for policy in policies:
        groups = [(number,) for number in everything] if policy.per_question else [everything]
        policy_points = policy.points_among(points)
        for questions in groups:
            # Another draw is scored anew; other levels of one draw may share a scoring.
            for repeat in sorted({point.repeat for point in policy_points}):
                scoring = []
                for point in policy_points:
                    if point.repeat == repeat:
                        situation = _situation(policy, point, prompt, questions, seed, donor)
                        treatment = Treatment(policy, situation, questions, time_limit, repeat)
                        scoring.append(treatment)
                scorings.append(tuple(scoring))
    return scorings


def _situation(
    policy: Policy,
    point: Point,
    prompt: Prompt,
    questions: Sequence[int],
    seed: int,
    donor: Callable[[], Donor] | None,
) -> Situation:
    length = len(prompt.token_ids)
    question = prompt.questions[questions[0]] if policy.per_question else None
    return Situation(
        point.level.share(length) or 0.0,
        length,
        # The first draw has the run's own seed: a run of one draw is a part of a run of several.
        derive_seed(seed, "repeat", point.repeat) if point.repeat else seed,
        prompt.example.id,
        question_tokens=prompt.question_tokens,
        spans=prompt.protected,
        answer_tokens=question.answer_tokens if question else (),
        evidence_tokens=question.evidence_tokens if question else (),
        texts=calibration_texts,
        level=point.level,
        donor=donor,
    )


def with_reference(scorings: Sequence[Scoring], prompt: Prompt) -> list[Scoring]:
    """Adds the full cache, against which the likelihood of right answers is compared, where it is
    not among them."""
    if not scorings or any(scoring[0].policy.name == FULL for scoring in scorings):
        return list(scorings)
    first = scorings[0][0]
    (full,) = plan([POLICIES[FULL]], (), prompt, first.situation.seed, first.time_limit)
    return [*scorings, tuple(replace(treatment, reference=True) for treatment in full)]
