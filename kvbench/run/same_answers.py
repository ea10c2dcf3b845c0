"""Asks the full cache again behind presses of users: one that changes a global of a library changes what all others
read, and nothing of the model shows it."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isclose

from datasets_gen import Example, Task
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.system.errors import KVBenchError
from policies import FULL, POLICIES

CLOSE = 1e-3  # nats; the same passes over the same tokens differ by rounding at most
FullAnswers = list[tuple[tuple[int, ...], float]]  # tokens, and nats of the right answer


@contextmanager
def same_full_answers(
    model: LoadedModel, task: Task, example: Example, setting: Setting, ask_again: bool
) -> Iterator[None]:
    """Raises :class:`KVBenchError` if the full cache answers otherwise behind the body, where it is asked again, than
    it first did in this process. Nothing is asked where all presses are kvpress's or ours."""
    foreign = [policy.name for policy in setting.policies if policy.origin]
    if not foreign:
        yield
        return
    asked = example.id, setting.mode, task.max_new_tokens
    if asked not in model.full_answers:
        model.full_answers[asked] = _answers(model, task, example, setting)
    before: FullAnswers = model.full_answers[asked]
    yield
    behind = _answers(model, task, example, setting) if ask_again else before
    for (tokens, nats), (tokens_before, nats_before) in zip(behind, before, strict=True):
        if tokens != tokens_before or not isclose(nats, nats_before, abs_tol=CLOSE):
            raise KVBenchError(
                f"behind {' or '.join(foreign)} the full cache answers {example.id} otherwise than before: a press "
                "changed what all others read, such as a global of torch: run without it"
            )


def _answers(model: LoadedModel, task: Task, example: Example, setting: Setting) -> FullAnswers:
    prompt = build_prompts(model.tokenizer, task, example, setting.mode)[0]
    trace = prefill(model, prompt, plan([POLICIES[FULL]], (), prompt, setting.seed, setting.time_limit))
    answers = decode(model, trace, task.max_new_tokens, setting.max_kv_bytes, gold=True)
    return [(tuple(answer.token_ids), answer.gold_nll or 0.0) for answer in answers]
