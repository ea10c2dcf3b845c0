"""Tells the command that makes a run again, from the options that made it."""

import shlex
from dataclasses import dataclass

from datasets_gen import NATIVE
from kvbench.prompts.context_length import default_tokens
from kvbench.store.run_file import Job, RunFile
from policies import KINDS


@dataclass(frozen=True)
class Reproduction:
    """The command that makes a run again."""

    command: str  # one line for a shell
    unknown: tuple[str, ...] = ()  # what the reader has to bring along, a sentence each


def reproduction(run: RunFile) -> Reproduction:
    """Tells the command, with the device and the type of numbers that the run had."""
    if run.job is None:
        return Reproduction(run.command, ("it was started by Python code and not by a command of kvbench",))
    device = run.identity.device.partition(" ")[0]
    job = run.job.model_copy(update={"device": device, "dtype": run.identity.dtype})
    return Reproduction(shlex.join(["python", "-m", "kvbench", *words_of(job)]))


def words_of(job: Job) -> list[str]:
    """Lists the words of the command: of its options those that are not as they are without being given, and the
    model, the seed, the mode, the device and the type of numbers always. A run without controls is made again with
    them."""
    always = ("model", "seed", "mode", "device", "dtype")
    options = {
        "--against" if job.press and name == "policies" else f"--{name.replace('_', '-')}": value
        for name, value in job
        if name not in ("press", "levels", "controls", "context_tokens")
        and (name in always or value != Job.model_fields[name].default)
        and (name, value, job.suite) != ("repeats", 1, None)  # the default without a suite
    }
    if job.context_tokens != default_tokens(job.suite, job.tasks):
        options["--context-tokens"] = NATIVE if job.context_tokens is None else job.context_tokens
    levels = {KINDS[kind].option: text for kind, text in job.levels.items()}
    start = ["compare", job.press] if job.press else ["run"]
    words = ([option] if value is True else [option, str(value)] for option, value in (options | levels).items())
    return [*start, *(word for of_option in words for word in of_option)]
