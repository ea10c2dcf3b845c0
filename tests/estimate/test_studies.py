"""What a plan counts of studies: by hand, and against the passes and tokens of real runs of the toy
model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

import kvbench.studies.numerics.tables
from datasets_gen import TASKS, Task
from datasets_gen.tasks.prose import PROSE
from kvbench.engine.studies.patching import inject, localise
from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.cost import RunCost
from kvbench.estimate.decoder import DecoderShape, shape_of_network
from kvbench.estimate.forecast import Passes, StudyPart
from kvbench.estimate.loads import Load, StudyLoad, count_load
from kvbench.estimate.machines import Machine
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.precision import NetworkCopies, in_dtype
from kvbench.store.run_file import Job
from kvbench.studies.numerics.forecast import injecting, localising, numerics_passes
from kvbench.studies.reconstruction.forecast import parts as reconstruction_parts
from kvbench.studies.registry import SUITES
from kvbench.studies.routing.forecast import FORECAST
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, planned_cost
from tests.support.models.toy import model_of, toy_model
from tests.support.wording import assert_says

TABLES = ("numerics_pairs", "numerics_drift", "numerics_recovery", "numerics_rounding")
BILLION = 10**9
SHAPE = DecoderShape("8 B", 32, 32, 8, 128, 8_030_000_000, "float32")
FAST = Machine("fast", 1e12, 1e9, 80e9, "made up")


def asked(first: float = 2.0, gold: float = 1.0, is_text: bool = False) -> StudyLoad:
    return StudyLoad(first, gold, is_text)


def load(study: StudyLoad, contexts: int = 4) -> Load:
    return Load("base", contexts, 10, 1.0, 2.0, 5, 0.0, [(POLICIES["full"], [1.0])], study=study)


def sums(passes: Sequence[Passes]) -> tuple[float, float]:
    return sum(one.count for one in passes), sum(one.tokens for one in passes)


def numerics(study: StudyLoad, is_most: bool, *tables: str, **options: Any) -> tuple[float, float]:
    """Passes and tokens over four contexts, of which two, the first and the fourth, are looked at
    closer."""
    chosen = NumericsOptions(
        **{"dtypes": ("float32", "bfloat16"), "sampling": ("greedy",), "steps": 3, **options}
    )
    return sums(list(numerics_passes(load(study), study, chosen, tables or TABLES, 32, is_most)))


def test_walks_of_an_answer_by_hand() -> None:
    """Behind 12 tokens three steps: cache on reads 12 and twice 1, cache off 12, 13 and 14. At
    least, the answer has two, its gold and an end."""
    walk, short = (3 + 3, 14 + 39), (2 + 2, 13 + 25)
    # All at once, and in one chunk of 32 each; then cache on twice over all steps.
    null = 3 + 3 + 2 * 3, 39 + 39 + 2 * 14
    null_of_two = 2 + 2 + 2 * 2, 25 + 25 + 2 * 13
    rounded = 1 + 2, 12 + 2 * 12  # the pass that is looked at, and two in float64
    # At step 2: the prompt, one token on it, all 14, the pass as it is, and one token for each of
    # three parts of 32 layers, of all up to each between the ends, and of all. At the first step
    # all 13 for each layer and as they are, behind the prompt and a token of cache on, and three
    # more steps of both paths.
    patches = 1 + 1 + 1 + 1 + 3 * 63, 12 + 1 + 14 + 1 + 3 * 63
    at_first = 1 + 1 + 33, 12 + 1 + 33 * 13
    behind = 3 + 3, 3 + 14 + 15 + 16
    at_step_1 = 1 + 1 + 1 + 3 * 63, 12 + 13 + 1 + 3 * 63
    for place in (0, 1):  # passes, tokens
        # In two dtypes, the patches in one: two walks as paths part, and the null row and the drift
        # of two contexts.
        patched = patches[place] + at_first[place] + behind[place]
        most = (
            2 * (4 * 2 * walk[place] + 2 * (null[place] + walk[place] + rounded[place]))
            + 4 * patched
        )
        assert numerics(asked(), True)[place] == most
        patched = at_step_1[place] + at_first[place]
        least = (
            2 * (4 * short[place] + 2 * (null_of_two[place] + short[place] + rounded[place]))
            + 4 * patched
        )
        assert numerics(asked(), False)[place] == least


def test_walks_of_running_text_by_hand() -> None:
    """Two given tokens, then both paths go on alone for three, and nothing is drawn."""
    text = asked(gold=2.0, is_text=True)
    forced, free, null = 2 + 2, 3 + 3, 2 + 2 + 2 * 2
    ways = ("greedy", "top_p")
    for is_most in (False, True):
        counted = numerics(text, is_most, "numerics_pairs", sampling=ways, repeats=5)[0]
        assert counted == 2 * (4 * (forced + free) + 2 * null)


@pytest.mark.parametrize(
    ("table", "passes"),
    [
        (
            "numerics_drift",
            2 * 2 * (6 + 6),
        ),  # two contexts: the greedy walk that it follows, and its own
        ("numerics_recovery", 4 * (6 + 193 + 35 + 6)),  # in 16 bits alone
        ("numerics_rounding", 2 * 2 * 3),
        ("numerics_pairs", 2 * (4 * 2 * 6 * 2)),  # two draws, and no null row
    ],
)
def test_a_table_alone_has_the_walks_that_it_needs(table: str, passes: int) -> None:
    assert numerics(asked(), True, table, sampling=("top_k",), repeats=2)[0] == passes


@dataclass
class Counted:
    """The passes of a network and of its copies, with their tokens."""

    passes: int = 0
    tokens: int = 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts passes by the embedding that each begins with; a hook of the model itself would count
    as a change."""
    counted = Counted()

    def count(module: torch.nn.Module, arguments: Any) -> None:
        if isinstance(module, torch.nn.Embedding):
            counted.passes += 1
            counted.tokens += arguments[0].numel()

    hook = register_module_forward_pre_hook(count)
    try:
        yield counted
    finally:
        hook.remove()


def passes_of_tables(
    task: Task, contexts: int, *policies: str, tables: tuple[str, ...], options: NumericsOptions
) -> tuple[Counted, Load]:
    """What the tables of a run add to its passes, and what a plan takes for its load."""
    model, counts = toy_model(), []
    chosen = [POLICIES[name] for name in policies]
    plain_grid = Grid([(task, contexts)], chosen, at_ratios((0.5,)), numerics=options)
    for planned in (plain_grid, replace(plain_grid, tables=tables)):
        with counting() as counted:
            collect(
                model,
                task,
                [planned.example(task, index) for index in range(contexts)],
                planned,
            )
        counts.append(counted)
    plain, filled = counts
    of_plan = count_load(planned, task, contexts, tokenizer=model.tokenizer)
    return Counted(filled.passes - plain.passes, filled.tokens - plain.tokens), of_plan


@pytest.mark.parametrize("task", ["base", "knowledge"])
def test_real_walks_of_answers_are_counted(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer ends before its four steps, as if its gold had three tokens: between least and most
    are walks whose paths part. Of one context, as of several a plan takes the mean length. Patches
    are counted below: paths that are equal to the bit, as some of the toy model are, have none."""
    plan, tables = kvbench.studies.numerics.tables._plan, ("numerics_pairs", "numerics_drift")
    monkeypatch.setattr(
        kvbench.studies.numerics.tables, "_plan", lambda *of_walk: replace(plan(*of_walk), ends=())
    )
    options = NumericsOptions(("float32", "bfloat16"), ("greedy", "top_k"), 2, 4)
    ran, of_plan = passes_of_tables(TASKS[task], 1, "full", tables=tables, options=options)
    assert of_plan.study is not None
    study = replace(of_plan.study, first_gold=3.0)
    ends = [
        list(numerics_passes(of_plan, study, options, tables, 2, is_most))
        for is_most in (False, True)
    ]
    (least, fewest), (most, highest) = map(sums, ends)
    assert least <= ran.passes <= most
    assert fewest <= ran.tokens <= highest
    assert ran.passes < 1.5 * least
    assert ran.tokens < 1.5 * fewest


@pytest.mark.parametrize("step", [1, 4])
def test_real_patches_are_counted_to_the_pass(step: int) -> None:
    ids, written = tuple(range(20, 50)), tuple(range(60, 60 + step))
    with counting() as ran:
        patches = list(localise(model_of("llama").network, ids, written))
    assert len(patches) == 3 * (2 + 1)
    assert (ran.passes, ran.tokens) == sums(localising("float32", len(ids), step, 2))


def test_real_patches_of_cache_off_are_counted_to_the_pass() -> None:
    """Where no answer ends, and no patch chooses another token."""
    ids, after = tuple(range(20, 50)), 3
    with counting() as ran:
        patches = list(inject(model_of("llama").network, ids, (60,), after))
    assert len(patches) == 2 + 1
    assert (ran.passes, ran.tokens) == sums(injecting("float32", len(ids), 2, after))


def test_real_walks_of_running_text_are_counted_to_the_pass() -> None:
    """Without the patches, whose step is not known before, there is nothing to guess."""
    options, tables = (
        NumericsOptions(("float32", "float16"), ("greedy",), 1, 4),
        ("numerics_pairs", "numerics_drift"),
    )
    ran, of_plan = passes_of_tables(PROSE, 1, "full", tables=tables, options=options)
    assert of_plan.study is not None
    assert of_plan.study.is_text
    for is_most in (False, True):
        counted = sums(list(numerics_passes(of_plan, of_plan.study, options, tables, 2, is_most)))
        assert (ran.passes, ran.tokens) == counted


def part(
    of_plan: Load, tables: Sequence[str], layers: int = 2, heads: int = 4
) -> dict[str, StudyPart]:
    """Returns by name the parts of the study of routes."""
    assert of_plan.study is not None
    parts = FORECAST.parts(of_plan, of_plan.study, NumericsOptions(), tables, layers, heads)
    return {part.name: part for part in parts}


def test_real_turns_that_are_observed_are_counted() -> None:
    """One context: it is passed once more, and so are the question and the first token of each
    answer."""
    tables = ("attention", "routes")
    ran, of_plan = passes_of_tables(
        TASKS["base"], 1, "full", "knorm", tables=tables, options=NumericsOptions()
    )
    observed = part(of_plan, tables)["observed answers"]
    passes, tokens = sums(observed.upper)
    assert of_plan.tokens + 2 * of_plan.questions * (of_plan.question_tokens + 1) == pytest.approx(
        tokens
    )
    assert tokens == pytest.approx(ran.tokens, rel=0.01)
    # Questions of other lengths are passed apart.
    assert passes == 1 + 2
    assert 3 <= ran.passes <= 2 + 1 + of_plan.questions
    assert observed.host[0] < observed.host[1], "edges of attention are not known before"


def test_interventions_of_a_context_by_hand() -> None:
    """Branches are decoded with their question in one portion, their answer, and their gold in
    another."""
    study = StudyLoad(2.0, 1.0, False, counts={"removed": 9.0, "restored": 5.0})
    branches = [
        (POLICIES["full"], [1.0]),
        (POLICIES["knorm"], [0.5, 0.1]),
        (POLICIES["kvzip"], [0.5]),
    ]
    of_plan = replace(load(study, contexts=2), branches=branches, gold_tokens=3.0)
    interventions = part(of_plan, ("interventions",))["interventions"]
    masked = 2 + 1  # levels of policies whose masks are known
    assert sums(interventions.lower) == (2 * (1 + 1 + 5), 2 * 9 * (2 + 5 + 3))
    assert sums(interventions.upper) == (2 * (1 + 1 + 5), 2 * (9 + masked * 5) * (2 + 5 + 3))


def test_weights_copies_and_caches_of_numerics_by_hand() -> None:
    """An 8 B model in float32 takes 32 GB, and its copy in 16 bits half of it: one at a time,
    whatever is asked for."""
    study = asked()
    cost = RunCost([load(study)], SHAPE, FAST, TABLES, NumericsOptions(steps=3))
    token = 2 * 32 * 8 * 128 * 4
    masks = 10 * 32 * 8
    by_hand = 8.03 * BILLION * (4 + 2) + 10 * token + 3 * (10 + 2 + 3) * token + masks
    assert cost.needed == pytest.approx(by_hand)
    assert cost.devices == ceil(by_hand / (0.9 * 80e9)) == 1
    assert replace(cost, machine=replace(FAST, memory=24e9)).devices == 3
    # Two copies for the first context, and one for each of the other three, read in 4 bytes and
    # written in 2.
    assert cost.copy_seconds == pytest.approx((2 + 3) * 8.03 * 6)
    in_one = replace(cost, numerics=NumericsOptions(("float32",)))
    assert (in_one.copy_bytes, in_one.copy_seconds) == (0, 0.0)
    emulating = replace(cost, machine=replace(FAST, emulated=("bfloat16", "float16")))
    assert emulating.copy_bytes == 8_030_000_000 * (2 + 4), (
        "there the layers hold their weights in float32 too"
    )


def test_the_plan_of_numerics_of_8_billion_parameters(cli: CommandLine) -> None:
    """It said 12 s and one rtx4090; weights and a copy are 48.2 GB, and thousands of passes read
    them. Without float32 no copy is made but that of the other 16 bits, and of one type alone
    none."""
    shape = (
        "--layers",
        "32",
        "--heads",
        "32",
        "--key-heads",
        "8",
        "--head-size",
        "128",
        "--parameters",
        "8.03",
    )
    assert cli("plan", *shape, "--suite", "numerics", "--limit", "24") == 0
    output = " ".join((cli.out + cli.err).split())
    assert_says(output, "16.1 GB (bfloat16)", "32.1 GB (float32)")
    assert "peak 48." in output
    assert "1 × h100" in output
    fits, too_much = output.split("fits one ")[1].split("; too much for one ")
    assert "h100" in fits
    assert all(card in too_much.split(".")[0] + too_much for card in ("rtx4090", "l40s"))
    assert "Studies are a projection" in output
    assert cli("plan", *shape, "--suite", "numerics(dtypes=[bf16,fp16])", "--limit", "24") == 0
    assert_says(
        " ".join((cli.out + cli.err).split()), "16.1 GB", "(bfloat16)", "16.1 GB", "(float16)"
    )
    assert cli("plan", *shape, "--suite", "numerics(dtypes=bf16)", "--limit", "24") == 0
    output = " ".join((cli.out + cli.err).split())
    assert "a copy" not in output
    assert "fits one rtx4090" in output


@pytest.mark.parametrize(
    "dtypes", [("bfloat16",), ("bfloat16", "float16"), ("float32", "bfloat16", "float16")]
)
def test_the_bytes_of_weights_are_those_that_are_held(dtypes: tuple[str, ...]) -> None:
    """On a GPU a checkpoint of 16 bits is loaded as it is, and copies of it are made one at a
    time."""
    network = in_dtype(model_of("llama").network, "bfloat16")
    shape = shape_of_network("toy", network, "bfloat16")
    cost = RunCost([load(asked())], shape, FAST, TABLES, NumericsOptions(dtypes))
    copies, held = NetworkCopies(network), []
    for dtype in copies.order(dtypes):
        networks = {id(one): one for one in (network, copies.network_in(dtype))}
        held.append(sum(bytes_of(one) for one in networks.values()))
    assert shape.weight_bytes + cost.copy_bytes == max(held)


def bytes_of(network: torch.nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in network.parameters())


def numerics_by_hand(tokens: Sequence[int], is_text: bool, steps: int, contexts: int) -> int:
    """Counts passes by going through what a run does where no answer ends and no paths part,
    context by context."""
    count = 0
    for index in range(contexts):
        for dtype in ("float32", "bfloat16", "float16"):
            walk = 2 * steps
            draws = 1 if is_text else 1 + 2 + 2  # greedy, and two draws of top_k and of top_p
            count += draws * walk + (walk if is_text else 0)
            if index % 3 == 0:
                count += 3 + sum(ceil((tokens[0] + step) / 32) for step in range(3)) + walk
                count += 2 * steps + 3  # cache on twice, and rounding
            if dtype != "float32":
                count += 1 + (steps - 2) + 1 + 1 + 3 * (32 + 30 + 1)
                count += 2 + 33 + 2 * min(steps, 31)
    return count


def test_the_passes_of_8_billion_parameters_are_those_by_hand() -> None:
    """Between the ends of each task lies what a run does whose answers do not end, and whose paths
    do not part."""
    cost = planned_cost(Job(suite="numerics", limit=24), SHAPE, None)
    assert (cost.numerics.steps, cost.numerics.repeats) == (None, 2)
    steps = {one.task: cost.numerics.steps_on(one.study.longest) for one in cost.loads if one.study}
    assert steps == {"base": 16, "arithmetic": 128, "prose": 16}
    for of_task in cost.loads:
        study = of_task.study
        assert study is not None
        tokens = [round(of_task.tokens + study.first_tokens)]
        by_hand = numerics_by_hand(tokens, study.is_text, steps[of_task.task], 24)
        whole = replace(study, first_gold=float(steps[of_task.task] - (not study.is_text)))
        ends = [
            sums(list(numerics_passes(of_task, whole, cost.numerics, cost.tables, 32, is_most)))[0]
            for is_most in (False, True)
        ]
        assert ends[0] <= by_hand <= ends[1]
        assert by_hand / ends[0] < 1.2
        assert ends[1] / by_hand < 1.8, "all that is drawn is walked twice where paths part"


@pytest.mark.parametrize("suite", SUITES)
def test_the_plan_of_a_suite_grows_with_its_contexts(suite: str) -> None:
    costs = [
        planned_cost(Job(suite=suite, limit=limit), replace(SHAPE, dtype="bfloat16"), None)
        for limit in (1, 2, 4, 12)
    ]
    for one, more in pairwise(costs):
        assert one.ends[0] <= one.ends[1]
        assert all(few < many for few, many in zip(one.ends, more.ends, strict=True))
    has_tables = bool(SUITES[suite].tables)
    assert all((cost.seconds < cost.ends[0]) == has_tables for cost in costs)


def test_reconstruction_is_a_pass_over_exact_rows_and_one_for_each_format() -> None:
    """Of snapkv+int4 and of rows that are quantised as they are written there is none."""
    policies = "snapkv,int4,q4_0,q4_0(tensor=V),snapkv+int4,q4_0(phase=write)"
    job = Job(
        policies=policies, tasks="base", levels={"ratio": "0.5"}, observe="reconstruction", limit=3
    )
    (of_base,) = planned_cost(job, SHAPE, None).loads
    assert of_base.study is not None
    (part,) = reconstruction_parts(of_base, of_base.study, NumericsOptions(), ("x",), 2, 2)
    (passes,) = part.lower
    assert passes.count == 3 * (1 + 3)
    assert passes.tokens / passes.count == (
        of_base.study.first_tokens + max(0, of_base.study.first_gold - 1)
    )
    alone = replace(of_base, branches=of_base.branches[:1])
    assert not list(reconstruction_parts(alone, of_base.study, NumericsOptions(), ("x",), 2, 2))


def test_a_grid_without_tables_costs_what_its_answers_cost() -> None:
    planned = Grid([(TASKS["base"], 1)], [POLICIES["full"]], at_ratios((0.5,)))
    assert planned.tables == ()
    cost = RunCost([load(asked())], SHAPE, FAST)
    assert (cost.ends, cost.walked, cost.copy_bytes) == ((cost.seconds, cost.seconds), 0.0, 0)
