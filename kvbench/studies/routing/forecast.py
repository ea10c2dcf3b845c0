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
    load: Load, numerics: NumericsOptions, tables: Sequence[str], layers: int, heads: int
) -> Iterator[StudyPart]:
    """Yields what is observed, and the interventions, on a task."""
    study = load.study
    if study is None:
        return
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
    cases = []
    for question in prompt.questions:
        spans = [name for name in SPANS if question.spans.get(name)]
        drawn = sum(many for name, many in DRAWS[action].items() if name in (*spans, "evidence"))
        if question.evidence_tokens:
            cases.append(len(spans) + 1 + drawn)
    return mean(cases) * min(len(cases), ASKED) if cases else 0.0


def _is_masked(policy: Policy) -> bool:
    """Tells whether a mask says what a policy keeps: only then rows are put back."""
    return not (policy.while_decoding or policy.rewrites)


def _observed(load: Load, tables: Sequence[str], layers: int, heads: int) -> StudyPart:
    """Counts the turns that are passed once more, the contexts that are, and the routes through
    both."""
    seen = [
        branch
        for branch in load.branches
        if _is_masked(branch[0]) and branch[0].prefill == "shared"
    ]
    shares = [share for _, of_policy in seen for share in of_policy]
    questions_of_prompt = load.questions / load.prompts
    answers, rows = (
        questions_of_prompt * len(shares),
        questions_of_prompt * sum(shares) * load.tokens,
    )
    groups = STEPS_SEEN * ceil(answers / max(1, observer.ROWS_AT_ONCE // load.tokens))
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
    passes = [each.times(prompts) for each in (context, turns)]
    noted = STEPS_SEEN * answers * layers * ROW_SECONDS
    followed = STEPS_SEEN * answers * layers * load.tokens * EDGE_SECONDS
    is_followed = ROUTES.name in tables
    least, most = (prompts * (noted + is_followed * edges * followed) for edges in EDGES)
    return StudyPart("observed answers", passes, passes, OBSERVED_ASSUMPTION, (least, most))


def _interventions(load: Load, study: StudyLoad, is_most: bool) -> Passes:
    """Counts the answers of branches with other rows: those of the full cache, and at most all
    others."""
    masked = [branch for branch in load.branches if _is_masked(branch[0])]
    others = sum(len(shares) for policy, shares in masked if policy.name != FULL)
    has_full = any(policy.name == FULL for policy, _ in masked)
    branches = has_full * study.counts[REMOVED] + is_most * others * study.counts[RESTORED]
    tokens = load.question_tokens + load.answer_tokens + load.gold_tokens
    portions = sum(
        ceil(part / columns.PLACES_AT_ONCE) for part in (load.question_tokens, load.gold_tokens)
    )
    passes = portions + load.answer_tokens if branches else 0
    read = branches * load.tokens
    counted = Passes("", passes, branches * tokens, tokens * read, passes * read)
    return counted.times(load.contexts * load.prompts)


FORECAST = Forecast(parts, counts)
