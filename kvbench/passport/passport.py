"""Makes the passport of a model's cache: what its rows are like, which formats they stand, and, if
questions are asked, which they stood."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvbench.checks.findings import Begin, silent
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.data import python_reference
from kvbench.models.load import LoadedModel, longest_sequence
from kvbench.passport.facts import LayerFacts, describe_layer
from kvbench.passport.forecast import FORMATS, FormatForecast, forecast_all
from kvbench.passport.probe import LayerStates, read_text
from kvbench.passport.trial import FormatOutcome, find_tasks, try_formats
from kvbench.system.errors import KVBenchError
from policies import HeadRows, Policy, Situation

# Of the text, and of them those that stand for a question.
TOKENS, ASKING = 640, 64
LEAST_WORDS = 200  # of a topic whose prose is part of the text
LONGEST_TOKEN = 20  # characters of prose, on average: no tokenizer's are as long
NUMBER_BYTES = 2  # of a cache in 16 bits, which bytes are set against


@dataclass(frozen=True)
class Passport:
    """Holds what is known of the cache of a model. ``bytes``: by format, in percent of a cache in 16
    bits; ``outcomes``: by format, where questions were asked."""

    model: str
    tokens: int  # of the text
    facts: Sequence[LayerFacts]
    forecasts: Sequence[FormatForecast]
    bytes: Mapping[str, float]
    outcomes: Mapping[str, FormatOutcome]
    tasks: Sequence[str] = ()  # whose questions were asked

    @property
    def verdict(self) -> str:
        """Says how many formats hold, and which of them takes least."""
        holding = [each for each in self.forecasts if not each.breaks]
        counted = f"{len(holding)} of {len(self.forecasts)} formats are foretold to hold"
        if not holding:
            return counted
        smallest = min(holding, key=lambda each: self.bytes[each.format])
        share = self.bytes[smallest.format]
        return f"{counted}; of these {smallest.format} takes least, {share:.0f} % of 16 bits"

    @property
    def score(self) -> str:
        """Says how many forecasts came true; empty where no question was asked."""
        if not self.outcomes:
            return ""
        right = 0
        for foretold in self.forecasts:
            right += self.outcomes[foretold.format].broke == foretold.breaks
        return f"{right} of {len(self.forecasts)} forecasts came true"

    def as_rows(self) -> dict[str, Any]:
        """Returns all of it as plain values."""
        return asdict(self)


def make_passport(
    model: LoadedModel, formats: Sequence[str] = FORMATS, contexts: int = 0, begin: Begin = silent
) -> Passport:
    """Makes a passport; ``contexts``: of each task whose questions are asked, 0 for none. Raises
    :class:`KVBenchError` where the model masters no task, or takes too few tokens."""
    begin("reading a text")
    states = read_states(model)
    begin("layers")
    facts = list(map(describe_layer, states))
    begin("formats")
    forecasts = forecast_all(find_policy, formats, states)
    policies = [find_policy(foretold.format) for foretold in forecasts]
    bytes_of_formats = {policy.name: count_percent(policy, states) for policy in policies}
    outcomes: dict[str, FormatOutcome] = {}
    names: list[str] = []
    if contexts:
        tasks = find_tasks(model, begin)
        names = [task.name for task in tasks]
        for outcome in try_formats(model, policies, tasks, contexts, begin):
            outcomes[outcome.format] = outcome
    tokens = states[0].tokens
    return Passport(model.name, tokens, facts, forecasts, bytes_of_formats, outcomes, names)


def read_states(model: LoadedModel) -> list[LayerStates]:
    """Reads the prose of Python's reference, which every Python has. Raises :class:`KVBenchError`
    for a model that takes no such text."""
    longest = longest_sequence(model)
    if longest < TOKENS // 2:
        raise KVBenchError(
            f"{model.name} takes {longest} tokens, and its cache is read over {TOKENS}"
        )
    long_topics = [topic for topic in python_reference() if len(topic.split()) >= LEAST_WORDS]
    tokens = min(TOKENS, longest)
    # A tokenizer takes seconds for the whole of it.
    text = " ".join(long_topics)[: tokens * LONGEST_TOKEN]
    return read_text(model, text, tokens, ASKING)


def count_percent(policy: Policy, states: Sequence[LayerStates]) -> float:
    """Returns what a format takes, in percent of a cache in 16 bits."""
    heads, tokens, size = states[0].keys.shape
    context = tokens - ASKING
    situation = Situation(ratio=0.0, context_length=context, seed=0, example_id="passport")
    count = policy.treatment.stored_bytes
    if count is None:
        return 100.0
    total = 0
    for number in range(len(states)):
        rows = HeadRows(context, size, NUMBER_BYTES, number, len(states))
        total += heads * count(situation, rows)
    exact = len(states) * heads * 2 * context * size * NUMBER_BYTES
    return 100 * total / exact
