"""The constants of the machine at hand, measured with a model of random weights; ``plan --measure`` writes them."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from statistics import mean, median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from datasets_gen import Task
from datasets_gen.long_context import context_of_tokens
from kvbench.collect import collect
from kvbench.engine.decode import decode
from kvbench.engine.prefill import prefill
from kvbench.engine.treatment import plan
from kvbench.identity import package_versions
from kvbench.models import LoadedModel, load_tokenizer, wrap_model
from kvbench.parquet import encoded
from kvbench.planning.constants import Constants, PressCost
from kvbench.planning.cost import seconds_together
from kvbench.planning.machine import Machine
from kvbench.planning.shape import Shape
from kvbench.planning.workload import TaskLoad
from kvbench.process import processor_name
from kvbench.prompt import Prompt, build_prompts
from kvbench.reference.shipped import folder_of
from kvbench.setting import Setting
from policies import POLICIES, Policy

LENGTHS = (256, 1024)
LAYERS, HIDDEN, HEADS, KEY_HEADS, HEAD_SIZE = 4, 512, 8, 2, 64
REPEATS = 3
THREE = (0.25, 0.45, 0.65)
PLENTY = 10**9  # bytes
Told = Callable[[str], None]


def measure(tell: Told, policies: Sequence[Policy] | None = None, lengths: tuple[int, int] = LENGTHS) -> Constants:
    """Takes minutes; ``tell`` is told what is measured. Policies that need a question, instructions or weights of their
    own are left out: a plan takes the median of the others for them."""
    torch.set_num_threads(1)  # or processor time would be that of all of them
    model, shape = _model()
    tell("matrix products and copies")
    flops, bandwidth = _flops(), _bandwidth()
    prompts = [_prompt(model, _task(model, length)) for length in lengths]
    plain = [median(prefill(model, prompt, []).seconds for _ in range(REPEATS)) for prompt in prompts]
    once = [len(prompt.token_ids) * shape.cache_bytes / bandwidth for prompt in prompts]
    cut = (_press_seconds(model, POLICIES["knorm"], prompts[1]) or 0.0) / once[1]  # a norm and a cut: more than a cut
    presses = {}
    for policy in _measurable(policies or list(POLICIES.values())):
        tell(policy.name)
        found = [_press_seconds(model, policy, prompt) for prompt in prompts]
        seconds = [own for own in found if own is not None]
        if len(seconds) == len(prompts):
            presses[policy.name] = _press_cost(policy, seconds, once, plain[1], cut)
    tell("decoding and records")
    return Constants(
        machine=f"one thread of {processor_name()}",
        date=datetime.now(UTC).date().isoformat(),
        packages=package_versions(),
        model=f"Llama of random weights, {shape.parameters / 1e6:.0f} M parameters, float32",
        lengths=lengths,
        flops=flops,
        bandwidth=bandwidth,
        prefill_share=min(1.0, shape.prefill_flops(len(prompts[1].token_ids)) / plain[1] / flops),
        decode_share=_decode_share(model, shape, prompts[0], flops, bandwidth),
        presses=presses,
        record_bytes=_record_bytes(model, lengths),
    )


class TimedByProcessor(LoadedModel):
    """Counts processor time: what else runs on the machine does not count."""

    def clock(self) -> float:
        return time.process_time()


def _model() -> tuple[LoadedModel, Shape]:
    tokenizer = load_tokenizer("reference")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=HEAD_SIZE,
        max_position_embeddings=2 * max(LENGTHS),
    )
    network = LlamaForCausalLM(config)
    network.set_attn_implementation("sdpa")
    network.generation_config.eos_token_id = None  # every answer is as long as it may be
    tokenizer.model_max_length = config.max_position_embeddings
    network.config._name_or_path = str(folder_of("reference"))  # some presses load the tokenizer from there
    model = TimedByProcessor(**vars(wrap_model("random", network, tokenizer, "random")))
    return model, Shape("random", LAYERS, HEADS, KEY_HEADS, HEAD_SIZE, network.num_parameters(), 4)


def _task(model: LoadedModel, tokens: int) -> Task:
    return context_of_tokens(tokens, model.count_tokens)


def _prompt(model: LoadedModel, task: Task) -> Prompt:
    return build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]


def _measurable(policies: Sequence[Policy]) -> Iterator[Policy]:
    for policy in policies:
        if not (policy.needs_question or policy.needs_spans or policy.weights):
            yield policy


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _flops(size: int = 1024, times: int = 8) -> float:
    left, right = torch.randn(size, size), torch.randn(size, size)

    def multiply() -> None:
        for _ in range(times):
            left @ right

    multiply()
    return 2.0 * size**3 * times / median(_seconds(multiply) for _ in range(REPEATS))


def _bandwidth(numbers: int = 2**26) -> float:
    """Of a copy, which reads and writes."""
    source = torch.randn(numbers)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / median(_seconds(lambda: target.copy_(source)) for _ in range(REPEATS))


def _press_seconds(model: LoadedModel, policy: Policy, prompt: Prompt) -> float | None:
    """The press's own work at a ratio, as if it ran alone; None if it fails. Of a prefill of its own, what it takes
    longer than the shared one."""
    ratios = tuple(ratio for ratio in THREE if ratio <= policy.highest_ratio)
    found = []
    for _ in range(REPEATS):
        branches = prefill(model, prompt, plan([policy], ratios, prompt, 0)).branches
        if any(branch.error for branch in branches):
            return None
        found.append(mean(branch.seconds for branch in branches))
    return median(found)


def _press_cost(policy: Policy, seconds: Sequence[float], once: Sequence[float], plain: float, cut: float) -> PressCost:
    """``seconds`` and ``once``, the reading of the cache, at the two lengths; ``cut``: readings that one more ratio
    takes where the scores are there."""
    if policy.prefill == "private":
        return PressCost(prefills=1 + seconds[1] / plain)
    short, long = (own / reading for own, reading in zip(seconds, once, strict=True))
    if policy.ratio_free_score:
        return PressCost(readings=(short, long), level_readings=min(long, cut))
    return PressCost(level_readings=max(short, long))


def _decode_share(model: LoadedModel, shape: Shape, prompt: Prompt, flops: float, bandwidth: float) -> float:
    """The time that the machine's speed would allow, over the engine's."""
    steps, chosen = 16, [POLICIES["full"], POLICIES["knorm"]]
    trace = prefill(model, prompt, plan(chosen, THREE, prompt, 0))
    taken = median(_seconds(lambda: decode(model, trace, steps, PLENTY)) for _ in range(REPEATS))
    machine = Machine("", flops, bandwidth, PLENTY, 1.0, 1.0, "")
    asked = [len(ask.token_ids) for ask in prompt.asks]
    load = TaskLoad("", 1, 1, trace.length, len(asked), sum(asked) / len(asked), steps, tuple(chosen))
    shares = [1.0, *(1 - ratio for ratio in THREE)]
    branches = [share * trace.length * shape.cache_bytes for share in shares]
    return min(1.0, seconds_together(load, shape, machine, branches, PLENTY) / taken)


def _record_bytes(model: LoadedModel, lengths: tuple[int, int]) -> tuple[float, float]:
    """Of one record, fixed and for each token of its context, from parquet files of two lengths."""
    found = []
    for length in lengths:
        task = _task(model, length)
        setting = Setting([POLICIES["knorm"]], THREE)
        rows = collect(model, task, [task.example(0, 0)], setting)
        (tokens,) = {question.context_tokens for question in rows.questions}
        size = sum(len(encoded(table)) for table in rows.to_tables().values())
        found.append((tokens, size / len(rows.records)))
    (short, few), (long, many) = found
    per_token = max(0.0, (many - few) / (long - short))
    return max(0.0, few - per_token * short), per_token
