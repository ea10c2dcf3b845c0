"""The day that a chat template tells. A run has one, which stands in its identity: transformers
takes it from the clock, so that a run that goes on after midnight, or is checked a week later,
would send other prompts."""

from datetime import date, datetime, time
from functools import partial

from transformers import PreTrainedTokenizerBase

from kvbench.models.pretrained import run_template
from kvbench.system.errors import KVBenchError

# They differ in the day, the month, the year, and the day of the week.
TWO_DAYS = ("2001-02-03", "2026-11-15")
TURNS = (
    [{"role": "user", "content": "?"}],
    [{"role": "system", "content": "!"}, {"role": "user", "content": "?"}],
)


def set_date(tokenizer: PreTrainedTokenizerBase, day: str) -> None:
    """Lets the chat template tell this day, at midnight, whoever runs it: kvpress's own pipeline
    too."""
    moment = datetime.combine(date.fromisoformat(day), time())
    # A variable of this name hides the function of transformers that asks the clock. Of the class,
    # since the instance may hold the day that was set before.
    with_day = partial(type(tokenizer).apply_chat_template, tokenizer, strftime_now=moment.strftime)
    vars(tokenizer)["apply_chat_template"] = with_day


def date_told(tokenizer: PreTrainedTokenizerBase, day: str) -> str:
    """Sets the day, and returns it if the chat template tells it, or else an empty text: a template
    that tells no day makes no other run tomorrow."""
    tells_date = False
    # With and without a system's turn, as a template may tell the day in one of them alone.
    if tokenizer.chat_template is not None:
        for turns in TURNS:
            tells_date = tells_date or _differs(tokenizer, turns)
    set_date(tokenizer, day)
    return day if tells_date else ""


def _differs(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]]) -> bool:
    texts = []
    for day in TWO_DAYS:
        set_date(tokenizer, day)
        try:
            texts.append(run_template(tokenizer, turns))
        except KVBenchError:  # whoever asks a question through it hears of it
            return False
    return texts[0] != texts[1]
