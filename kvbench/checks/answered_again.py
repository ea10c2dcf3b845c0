"""Lets the model of a run answer some of its contexts again, and says of what no answer is given
again, and why."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from kvbench.checks.findings import Finding, finding_from_faults, unchecked
from kvbench.checks.handed_in import Submission
from kvbench.checks.replay import Comparison, Replay
from kvbench.checks.tolerance import OF_LIKELIHOOD
from kvbench.checks.trusted import OPTION
from kvbench.execution.local import is_small
from kvbench.experiments.grid import arguments_and_origin, device_name, package_versions
from kvbench.models.libraries import library_contents, switches
from kvbench.models.load import LoadedModel, load_model
from kvbench.store.packing import BY_LAYER
from kvbench.store.press_sources import kept_press
from kvbench.store.tables import Record

# Two machines may break a tie of two tokens differently, so that these alone are compared with a
# run of another one.
SAME_ANYWHERE = (
    "status",
    "ended",
    "press_arguments",
    "realised_ratio",
    "kept_tokens",
    "kv_bytes",
    "output_token_ids",
)
# Times are those of the moment, and the last two depend on what was computed together with an
# answer.
NEVER_THE_SAME = {
    "prefill_seconds",
    "compression_seconds",
    "decode_seconds",
    "wave_halvings",
    "cache_digest",
}
OF_SAME_CODE = (*SAME_ANYWHERE, *OF_LIKELIHOOD)
OTHER_MACHINE = "another device, code or package made the run: its likelihoods and what it keeps"
OTHER_KERNELS = (
    "the kernels of another processor made the run, or other batches: which tokens it keeps is not "
    "compared, and its likelihoods only roughly"
)
FEW = 0.1  # of the answers: on another machine rounding changes some
Context = tuple[str, int]  # the task, and the number of the context in it


def check_replay(submission: Submission) -> Iterator[Finding]:
    """Answers some contexts again, with all their cells, drawn at random so that nobody knows
    which."""
    contexts = _contexts_to_answer(submission)
    cells: dict[Context, int] = {}
    for context, records in contexts.items():
        cells[context] = count_context_cells(records)
    chosen = contexts_drawn(cells, submission.replayed, _trusted_tasks(submission))
    yield from _not_replayed(submission, contexts, chosen)
    if not chosen:
        return
    identity = submission.store.identity
    # In the dtype and with the day of the run, whatever this machine would choose.
    model = load_model(identity.model, dtype=identity.dtype, date=identity.date or None)
    if model.date and not identity.date:
        yield unchecked(
            "replay",
            "the chat template tells the day, and the run was made before runs stored theirs",
        )
        return
    # The whole run, and not only what is drawn: policies treat a context in the company that they
    # had.
    replay = Replay(submission.store, model, submission.tasks, submission.policies)
    with one_thread_if(is_small(model)):  # as a worker of a run has it
        rounding, faults = _compared(submission, replay, contexts, chosen)
    yield from _not_compared(submission, replay, rounding)
    again = _records_compared(replay)
    answers = sum(map(len, again.values()))
    if not answers:
        return
    for name, text in _notes_on_other_code(submission, model).items():
        of_policy = [fault for fault in faults if fault.startswith(f"{name} at ")]
        # They tell of the code and not of the run, and are counted without being held against it.
        faults = [fault for fault in faults if fault not in of_policy]
        yield unchecked("replay", f"{text}; {len(of_policy)} of its answers differ")
    replayed = f"{count_cells(again):,} of {count_cells(contexts):,} cells answered again"
    if faults and rounding and len(faults) < FEW * answers:
        text = f"{len(faults)} of {answers} answers differ, as rounding does: {faults[0]}"
        yield unchecked("replay", f"{replayed}; {text}")
        return
    sound = f"{replayed} as they are stored{_of_trusted_code(submission, again)}"
    if submission.store.study_tables and not rounding:
        tables = ", ".join(table.name for table in submission.store.study_tables)
        sound += f", and their rows of {tables}"
    if replay.ties:
        sound += f"; {replay.ties:,} of {answers:,} answers part where two tokens are as likely"
    yield finding_from_faults("replay", sound, faults)


def _compared(
    submission: Submission,
    replay: Replay,
    contexts: Mapping[Context, Sequence[Record]],
    chosen: Sequence[Context],
) -> tuple[str, list[str]]:
    """Answers the chosen contexts again. Returns why what rounding changes could not be compared, an
    empty text where it was, and all that differs."""
    is_same_machine = _is_same_machine(submission, replay.model)
    # What observers saw depends on every rounding: on another machine it is no proof of anything.
    tables = submission.store.study_tables if is_same_machine else ()
    for name, index in chosen:
        replay.answer(name, submission.examples[name][index], contexts[name, index], tables)
    elsewhere = replay.tolerance_elsewhere
    if not is_same_machine:
        return OTHER_MACHINE, replay.faults(Comparison(SAME_ANYWHERE, elsewhere))
    columns = set(Record.model_fields) - NEVER_THE_SAME
    if submission.store.is_packed:
        columns -= {*BY_LAYER}
    faults = replay.faults(Comparison(columns, replay.tolerance, tables))
    if not faults or replay.is_rounded_alike():
        return "", faults
    # A run knows its device, and not the kernels that its processor chose.
    return OTHER_KERNELS, replay.faults(Comparison(OF_SAME_CODE, elsewhere))


def _not_compared(submission: Submission, replay: Replay, rounding: str) -> Iterator[Finding]:
    """Says what of the answers that were given again was not compared, and why."""
    if rounding:
        yield unchecked("rounding", rounding)
        if submission.store.identity.tables:
            names = ", ".join(submission.store.identity.tables)
            yield unchecked("replay", f"the numbers of {names} are not made again elsewhere")
    if failed := replay.failed():
        answers = sum(len(context.stored) for context in replay.contexts)
        text = f"{len(failed)} of {answers} answers could not be given here: {failed[0]}"
        yield unchecked("replay", text)


def _is_same_machine(submission: Submission, model: LoadedModel) -> bool:
    """Tells whether the same kind of device, packages, settings and code made the run as are
    here."""
    identity = submission.store.identity
    return (
        submission.is_of_this_code
        and identity.device == device_name(model.device)
        and identity.packages == package_versions(model.device)
        and identity.contents == library_contents(model.packages)
        and identity.switches == switches(model.device)
    )


def _contexts_to_answer(submission: Submission) -> Mapping[Context, Sequence[Record]]:
    """Returns by context the records of it that can be made again here."""
    contexts: dict[Context, list[Record]] = defaultdict(list)
    if not submission.model_is_here:
        return contexts
    for answer in submission.answers:
        record = answer.record
        is_here = record.task in submission.tasks and record.policy in submission.policies
        # What failed there may succeed here, as with more memory. A packed run has the tokens of
        # its examples alone.
        if is_here and record.status == "ok" and record.output_token_ids is not None:
            contexts[record.task, answer.question.example_index].append(record)
    return contexts


def _trusted_tasks(submission: Submission) -> set[str]:
    """Names the tasks of the policies whose code is trusted: theirs is what a reviewer asks
    about."""
    tasks: set[str] = set()
    for policy in submission.store.identity.policies:
        if policy.name in submission.trusted:
            tasks.update(policy.tasks)
    return tasks


def _not_replayed(
    submission: Submission, contexts: Mapping[Context, Sequence[Record]], chosen: Sequence[Context]
) -> Iterator[Finding]:
    """Says of what no answer is given again, a sentence for each reason."""
    identity, folder = submission.store.identity, submission.store.folder
    if identity.begun:
        yield unchecked(
            "replay",
            "a server gave the answers, and need not give them again: its settings are what can be "
            "compared",
        )
        return
    if not submission.model_is_here:
        where = f"python -m kvbench fetch {identity.model}, or name its folder where the run has it"
        yield unchecked(
            "replay",
            f"the model {identity.model} is not here, so no answer was given again: {where}",
        )
        return
    if foreign := [task.name for task in identity.tasks if task.name not in submission.tasks]:
        names = ", ".join(foreign)
        yield unchecked(
            "replay", f"{names} cannot be generated here: no answer there was given again"
        )
    for policy in identity.policies:
        if policy.name in submission.policies:
            continue
        advice = f"ask for its file, read it and add {OPTION} FILE"
        if kept := kept_press(folder, policy.name):
            advice = f"read {kept} and add {OPTION} {kept}"
        yield unchecked(
            "replay", f"{policy.name} is code from outside, which is not run unasked: {advice}"
        )
    possible: set[str] = set()
    seen: set[str] = set()
    for context, records in contexts.items():
        policies = {record.policy for record in records}
        possible |= policies
        if context in chosen:
            seen |= policies
    if unseen := sorted(possible - seen):
        enough = f"give more than --replay {submission.replayed}"
        yield unchecked("replay", f"no context with {', '.join(unseen)} was drawn: {enough}")
    elif not chosen:
        yield unchecked(
            "replay",
            "the run has no answer that could be given again: all failed, or there is none",
        )


def _notes_on_other_code(submission: Submission, model: LoadedModel) -> dict[str, str]:
    """Names the trusted policies whose code is not the one that the run has the hash of, each with
    a sentence."""
    texts: dict[str, str] = {}
    for planned in submission.store.identity.policies:
        if planned.name not in submission.trusted:
            continue
        _, origin = arguments_and_origin(submission.policies[planned.name], model)
        if origin != planned.origin:
            hashes = f"{origin or 'none'}, the run has {planned.origin or 'none'}"
            texts[planned.name] = (
                f"the code of {planned.name} here, or of a package that it imports, is not that "
                f"of the run ({hashes})"
            )
    return texts


def _records_compared(replay: Replay) -> dict[Context, list[Record]]:
    """Returns by context the stored records whose answers were given again."""
    again: dict[Context, list[Record]] = {}
    for context in replay.contexts:
        stored = [record for record, _ in context.pairs]
        again[context.task.name, context.example.index] = stored
    return again


def _of_trusted_code(submission: Submission, again: Mapping[Context, Sequence[Record]]) -> str:
    """Says how many of the cells that were answered again are those of each trusted press."""
    text = ""
    for name in submission.trusted:
        cells = 0
        for records in again.values():
            cells += count_context_cells([record for record in records if record.policy == name])
        text += f", {cells:,} of them by {name}"
    return text


def count_context_cells(records: Sequence[Record]) -> int:
    """Counts what was answered of one context: each policy at each of its levels and draws."""
    return len({(record.policy, record.point) for record in records})


def count_cells(contexts: Mapping[Context, Sequence[Record]]) -> int:
    return sum(map(count_context_cells, contexts.values()))


def contexts_drawn(
    cells: Mapping[Context, int], least: int, tasks_first: Collection[str] = ()
) -> list[Context]:
    """Draws contexts until they have so many cells: one of every task first, of some tasks before
    all others, and no more contexts than cells."""
    draw = random.SystemRandom().sample(sorted(cells), len(cells))
    by_task = {task: (task, index) for task, index in draw}
    first = set(by_task.values())
    # A stable sort: within each group the order stays that of the draw.
    draw.sort(key=lambda context: (context not in first, context[0] not in tasks_first))
    chosen: list[Context] = []
    cells_chosen = 0
    for context in draw:
        is_enough = cells_chosen >= least and context not in first
        if is_enough or len(chosen) >= least:
            break
        chosen.append(context)
        cells_chosen += cells[context]
    return chosen


@contextmanager
def one_thread_if(is_single: bool) -> Iterator[None]:
    """Has torch compute with one thread inside a ``with`` block; with all threads it may add in
    another order."""
    before = torch.get_num_threads()
    if is_single:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
