"""Scores outputs again, and decodes their tokens again."""

from collections.abc import Iterator

from datasets_gen import DatasetError
from kvbench.checks.findings import Finding, finding_of, unchecked
from kvbench.checks.submission.reading import Submission, place_of
from kvbench.prompts.ends import AnswerEnds
from kvbench.prompts.prompt import answer_text
from kvbench.store.record import Record
from kvbench.store.scoring import SCORES, scores_of
from kvbench.system.errors import KVBenchError, first_line


def check_scores(submission: Submission) -> Iterator[Finding]:
    """Scores the stored outputs again, and compares the scores."""
    faults = []
    without_judge: dict[str, str] = {}  # by task, the reason
    for answer in submission.answers:
        record = answer.record
        try:
            scores = scores_of(answer)
        except KVBenchError as error:  # a judge that is not installed
            without_judge.setdefault(record.task, str(error))
            continue
        except (DatasetError, ValueError, KeyError, IndexError) as error:  # of a record that was tampered with
            faults.append(f"{place_of(record)} cannot be scored ({first_line(error)})")
            continue
        if name := next((name for name in SCORES if getattr(record, name) != scores.get(name)), None):
            faults.append(f"{place_of(record)}: {name} is {getattr(record, name)}, its output has {scores.get(name)}")
    for task, reason in without_judge.items():
        yield unchecked("scores", f"{task} cannot be scored here: {reason}")
    yield finding_of("scores", "as the stored outputs have them", faults)


def check_outputs(submission: Submission) -> Iterator[Finding]:
    """Decodes the tokens of each text again; checks that none is too long and that only failed answers have none."""
    longest = {task.name: task.max_new_tokens for task in submission.identity.tasks}
    tokenizer, texts = submission.tokenizer, dict[tuple[int, ...], str]()
    faults = []
    for record in submission.records:
        text, ids = record.output_text, record.output_token_ids
        if (record.status == "ok") != (text is not None) or (text is None) != (ids is None):
            faults.append(f"{place_of(record)} is {record.status} and has {'no ' * (text is None)}output")
        elif ids is not None and len(ids) > longest.get(record.task, len(ids)):
            faults.append(f"{place_of(record)} has {len(ids)} tokens, where {longest[record.task]} are allowed")
        elif ids is not None and tokenizer is not None:
            if tuple(ids) not in texts:
                known = all(0 <= token < len(tokenizer) for token in ids)
                texts[tuple(ids)] = answer_text(tokenizer, ids) if known else "tokens that the model does not have"
            if text != texts[tuple(ids)]:
                faults.append(f"{place_of(record)}: output is {text!r:.60}, its tokens say {texts[tuple(ids)]!r:.60}")
            elif record.task in submission.ends:
                fault = _fault_of_end(record, submission.ends[record.task], longest.get(record.task, 0))
                faults += [f"{place_of(record)}: {fault}"] if fault else []
    yield finding_of("outputs", "as their tokens say" if tokenizer else "none is too long", faults)
    if tokenizer is None:
        model = submission.identity.model
        here = submission.model_source is not None
        reason = f"the model {model} that is here has another fingerprint" if here else f"{model} is no folder here"
        yield unchecked("outputs", f"not decoded, as the tokenizer of the run is not known: {reason}")


def _fault_of_end(record: Record, ends: AnswerEnds, longest: int) -> str:
    """Says how the end of an answer contradicts its tokens: it stops at the first end, or at its last place."""
    ids = record.output_token_ids or [-1]
    until_end, ended = ends.until_end(ids)
    if len(until_end) < len(ids):
        return "it goes on behind an end token"
    if record.ended != ended:
        return f"ended is {record.ended}, its last token is {ids[-1]}"
    if not record.ended and len(ids) < longest:
        return f"it stops without an end token, {len(ids)} of {longest} tokens long"
    return ""
