"""Counts what the study of routes computes beside the answers of a run: observed turns, and
interventions."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from statistics import mean
from typing import TYPE_CHECKING

from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.forecast import STEP_READS, Forecast, Passes, StudyPart
from kvbench.estimate.loads import Load, StudyLoad
from kvbench.estimate.machines import CALLS
from kvbench.studies.registry import OBSERVED
from kvbench.studies.routing.attention import ROUTES, SAMPLE
from kvbench.studies.routing.interventions import ASKED, DRAWS, INTERVENTIONS, SPANS
from policies import FULL, LazyModule, Policy

if TYPE_CHECKING:
    from kvbench.prompts.prompt import Prompt

# They need torch, and a mistyped option waits for none.
columns = LazyModule("kvbench.engine.decode.columns")
observer = LazyModule("kvbench.engine.studies.observer")

# Of an observed matrix of attention: scaled, masked, normalised, compared, and multiplied.
WEIGHT_READS = 10
OF_A_BLOCK = 8  # calls of an observed block of one head
# Measured on `reference`, on one thread of an AMD EPYC.
OF_A_TURN = 1.5  # times the calls of a layer: an observed answer is attended to, and noted, alone
EDGE_SECONDS = 26e-9  # of the host, to join an edge to others and to follow it
ROW_SECONDS = 0.2e-3  # of the host: what is noted of a layer at a step, as a row of the store
# That a token of the context has in a layer: 21 on `reference`; of others assumed.
EDGES = (10.0, 60.0)
STEPS_SEEN = 2  # of an observed answer: behind its question, and behind its first token
# Of a prompt: branches of the full cache with rows taken away, where it answers right; and branches
# of a level with rows put back, where it answers wrongly.
REMOVED, RESTORED = "removed", "restored"
OBSERVED_ASSUMPTION = (
    f"Observed answers, of the first {SAMPLE} contexts: the host follows {EDGES[0]:.0f} to "
    f"{EDGES[1]:.0f} edges of attention from each token of a layer, which a model alone can tell."
)
INTERVENTIONS_ASSUMPTION = (
    "Interventions, at least: the full cache is right and no policy loses an answer; at most: "
    "every policy loses all; none where the full cache is wrong."
)


def parts(
    load: Load,
    study: StudyLoad,
    numerics: NumericsOptions,
    tables: Sequence[str],
    layers: int,
    heads: int,
) -> Iterator[StudyPart]:
    """Yields what is observed, and the interventions, on a task."""
    if any(table in tables for table in OBSERVED):
        yield _observed(load, tables, layers, heads)
    if INTERVENTIONS.name in tables:
        fewest = _interventions(load, study, is_most=False)
        all_of_them = _interventions(load, study, is_most=True)
        yield StudyPart("interventions", [fewest], [all_of_them], INTERVENTIONS_ASSUMPTION)


def counts(prompts: "Sequence[Prompt]") -> Mapping[str, float]:
    """Counts the branches with other rows, a mean over some prompts."""
    return {
        REMOVED: mean(_changed(prompt, "remove") for prompt in prompts),
        RESTORED: mean(_changed(prompt, "restore") for prompt in prompts),
    }


def _changed(prompt: "Prompt", action: str) -> float:
    """Counts the branches that an intervention makes of a branch for the questions of a prompt that
    it asks about; these are the first that the full cache has right, so it takes the mean of
    all."""
    counts: list[int] = []
    for question in prompt.questions:
        if not question.evidence_tokens:
            continue
        spans = [name for name in SPANS if question.spans.get(name)]
        drawn = 0
        for name, draws in DRAWS[action].items():
            if name == "evidence" or name in spans:
                drawn += draws
        counts.append(len(spans) + 1 + drawn)
    if not counts:
        return 0.0
    return mean(counts) * min(len(counts), ASKED)


def _is_masked(policy: Policy) -> bool:
    """Tells whether a mask says what a policy keeps: only then rows are put back."""
    return not (policy.while_decoding or policy.rewrites)


def _observed(load: Load, tables: Sequence[str], layers: int, heads: int) -> StudyPart:
    """Counts the turns that are passed once more, the contexts that are, and the routes through
    both."""
    shares: list[float] = []
    for policy, shares_of_policy in load.branches:
        if _is_masked(policy) and policy.prefill == "shared":
            shares += shares_of_policy
    questions_of_prompt = load.questions / load.prompts
    answers = questions_of_prompt * len(shares)
    rows = questions_of_prompt * sum(shares) * load.tokens
    answers_at_once = max(1, observer.ROWS_AT_ONCE // load.tokens)
    groups = STEPS_SEEN * ceil(answers / answers_at_once)
    turn = load.question_tokens + 1
    blocks = ceil(load.tokens**2 / observer.WEIGHTS_AT_ONCE)
    context = Passes(
        count=1,
        tokens=load.tokens,
        pairs=load.tokens**2,
        read=WEIGHT_READS * 4 * layers * heads * load.tokens**2,
        layers=layers * heads * blocks * OF_A_BLOCK / CALLS,
    )
    turns = Passes(
        count=groups,
        tokens=answers * turn,
        pairs=turn * rows,
        cached=STEPS_SEEN * STEP_READS * rows,
        layers=STEPS_SEEN * answers * layers * OF_A_TURN,
    )
    prompts = min(load.contexts, SAMPLE) * load.prompts
    passes = [context.times(prompts), turns.times(prompts)]
    noted = STEPS_SEEN * answers * layers * ROW_SECONDS
    followed = 0.0  # seconds for each edge of a token
    if ROUTES.name in tables:
        followed = STEPS_SEEN * answers * layers * load.tokens * EDGE_SECONDS
    fewest_edges, highest_edges = EDGES
    host = (
        prompts * (noted + fewest_edges * followed),
        prompts * (noted + highest_edges * followed),
    )
    return StudyPart("observed answers", passes, passes, OBSERVED_ASSUMPTION, host)


def _interventions(load: Load, study: StudyLoad, is_most: bool) -> Passes:
    """Counts the answers of branches with other rows: those of the full cache, and at most all
    others."""
    branches = 0.0
    others = 0
    for policy, shares in load.branches:
        if not _is_masked(policy):
            continue
        if policy.name == FULL:
            branches = study.counts[REMOVED]
        else:
            others += len(shares)
    if is_most:
        branches += others * study.counts[RESTORED]
    if not branches:
        return Passes()
    passes = load.answer_tokens
    for part in (load.question_tokens, load.gold_tokens):
        passes += ceil(part / columns.PLACES_AT_ONCE)
    tokens = load.question_tokens + load.answer_tokens + load.gold_tokens
    read = branches * load.tokens
    counted = Passes(
        count=passes, tokens=branches * tokens, pairs=tokens * read, cached=passes * read
    )
    return counted.times(load.all_prompts)


FORECAST = Forecast(parts, counts)
