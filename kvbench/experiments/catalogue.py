"""Chooses the policies of a run: those that are named, as far as the tasks and the mode allow
them."""

from collections.abc import Iterable, Mapping, Sequence

from datasets_gen import Task, nearest, unknown_name
from kvbench.handed.scope import find_handed_policy
from kvbench.prompts.mode import Mode, Scope
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from policies import FULL, LEVEL_KINDS, POLICIES, REFERENCES, TO_BEAT, Point, Policy, PolicyError
from policies.composition import (
    QUANTISATION_NAMES,
    TREATMENTS,
    check_alone,
    compose,
    is_treatment,
    is_way,
    make_treatment,
)
from policies.declaration.levels import shared_levels
from policies.declaration.names import PLAIN, plain_and_way, split_outside_brackets
from policies.declaration.plug_in import is_plug_in, load_even_if_broken, load_plug_in, plug_ins
from policies.declaration.shape import ModelShape
from policies.treatments.deployed import WAYS
from policies.treatments.options import kind_in
from policies.treatments.spelling import spell_out

EVERYTHING = "all"
DEFAULT = "default"


def policies_for(policies: Iterable[Policy], task: Task, mode: Mode) -> list[Policy]:
    """Keeps the policies that mean something on a task in this mode."""
    return [policy for policy in policies if not why_not(policy, task, mode)]


def why_not(policy: Policy, task: Task, mode: Mode) -> str:
    """Says why a policy means nothing on a task in this mode; nothing if it does."""
    if policy.needs.question and mode != "aware":
        return "it reads the question with the context: use --mode aware"
    if policy.needs.spans and task.role != "system":
        return f"it protects instructions, and the contexts of {task.name} have none"
    if policy.needs.donor and task.most == 1:
        return f"it takes rows of another context, and {task.name} has one: give more data"
    return ""


def why_nowhere(policy: Policy, tasks: Sequence[Task], mode: Mode) -> str:
    """Says why a policy means nothing on any of these tasks, by the first; nothing if it does on
    one."""
    reasons = [why_not(policy, task, mode) for task in tasks]
    if not reasons or not all(reasons):
        return ""
    return reasons[0]


def left_out(suite_policies: str, tasks: Sequence[Task], mode: Mode) -> list[str]:
    """Says which policies of a suite mean nothing on any task of a run, one line for each
    reason."""
    by_reason: dict[str, list[str]] = {}
    for name in split_outside_brackets(suite_policies):
        reason = why_nowhere(find_policy(name), tasks, mode)
        if reason:
            by_reason.setdefault(reason, []).append(name)
    lines: list[str] = []
    for reason, names in by_reason.items():
        lines.append(f"left out: {', '.join(names)}: {reason}")
    return lines


def without_question(names: str | None) -> str | None:
    """Returns the named policies that can be run before a question is seen; the text as it is where
    it names none. Raises :class:`KVBenchError` where all of them need the question."""
    if names is None or names.strip() in (DEFAULT, EVERYTHING):
        return names
    chosen: list[str] = []
    for name in split_outside_brackets(names):
        if not find_policy(name, True).needs.question:
            chosen.append(name)
    if not chosen:
        raise KVBenchError(f"--mode both: {names} all need the question: use --mode aware")
    return ",".join(chosen)


def check_scope(tasks: Sequence[Task], mode: Mode, scope: Scope) -> None:
    """Raises :class:`KVBenchError` where a system prompt is to be compressed that is not there, or
    more than it."""
    if scope != "system":
        return
    if mode == "aware":
        raise KVBenchError("compress=system leaves the user's turn as it is: use --mode agnostic")
    for task in tasks:
        if task.role != "system":
            raise KVBenchError(
                f"{task.name} has no system prompt: leave it out, or use --mode "
                f'"agnostic(compress=context)"'
            )


def choose_policies(
    names: str | None,
    tasks: Sequence[Task],
    mode: Mode,
    even_if_broken: bool = False,
    of_suite: bool = False,
) -> list[Policy]:
    """Finds policies by a comma-separated list of names and plug-ins, by ``all``, or by None or
    ``default``.

    It raises :class:`KVBenchError` for one that can run nowhere, unless it came with ``all`` or a
    suite, and for a plug-in that cannot be used, unless it may be recorded as failed."""
    chosen: list[Policy] = []
    if names is None or names.strip() == DEFAULT:
        chosen = [policy for policy in POLICIES.values() if policy.by_default]
    elif names.strip() == EVERYTHING:
        for policy in known_policies().values():
            if policy.name not in TREATMENTS and not why_nowhere(policy, tasks, mode):
                chosen.append(policy)
    else:
        for name in dict.fromkeys(split_outside_brackets(names)):
            chosen.append(find_policy(name, even_if_broken))
        if not chosen:
            raise KVBenchError(
                f"no policy given: name policies of python -m kvbench ls policies, or "
                f"{EVERYTHING}, or {DEFAULT}"
            )
    nowhere: dict[str, str] = {}
    for policy in chosen:
        reason = why_nowhere(policy, tasks, mode)
        if reason:
            nowhere[policy.name] = reason
    if nowhere and (not of_suite or len(nowhere) == len(chosen)):
        name, reason = next(iter(nowhere.items()))
        raise KVBenchError(f"{name} cannot be run here: {reason}")
    chosen = [policy for policy in chosen if policy.name not in nowhere]
    check_names(chosen)
    return chosen


def press_and_others(
    press: str, against: str | None, tasks: Sequence[Task], mode: Mode, controls: bool = True
) -> tuple[Policy, list[Policy]]:
    """Returns the press that a comparison is about, and the policies that it is compared with.
    ``controls``: whether random and recency are among them, where somebody takes their levels.
    Raises :class:`KVBenchError` where no press, or several, or nothing else is named."""
    mine, *more = choose_policies(press, tasks, mode)
    if more:
        raise KVBenchError(
            f"compare takes one press, and '{press}' names {1 + len(more)}: name others with "
            f"--against"
        )
    check_is_press(mine)
    # What nobody named by itself is compared only where both have a kind of level; a policy that
    # was named and has none in common is refused later (check_levels_meet).
    is_named = (against or DEFAULT).strip() not in (EVERYTHING, DEFAULT)
    others: list[Policy] = []
    for policy in choose_policies(against, tasks, mode):
        is_mine = (policy.name, policy.code.origin) == (mine.name, mine.code.origin)
        have_kinds = bool(mine.kinds and policy.kinds)
        share_kinds = bool(set(mine.kinds) & set(policy.kinds))
        if not is_mine and (is_named or share_kinds or not have_kinds):
            others.append(policy)
    if not others:
        raise KVBenchError(f"--against {against}: name a policy other than {mine.name}")
    names = {mine.name}
    kinds = set(mine.kinds)
    for policy in others:
        names.add(policy.name)
        kinds.update(policy.kinds)
    if controls:
        for name in TO_BEAT:
            if name not in names and kinds & set(POLICIES[name].kinds):
                others.append(POLICIES[name])
    return mine, others


def check_levels_meet(mine: Policy, others: Sequence[Policy], points: Sequence[Point]) -> None:
    """Raises :class:`KVBenchError` for a policy that has no level of the press, where neither has
    one level alone."""
    levels_of_press = mine.levels_among(points)
    for other in others:
        levels = other.levels_among(points)
        if not levels_of_press or not levels or shared_levels(levels_of_press, levels):
            continue  # what reaches no level at all has an error of its own
        fault = (
            f"{mine.name} and {other.name} have no level in common: "
            f"{_kinds_text(mine)}, {_kinds_text(other)}"
        )
        if set(mine.kinds) & set(other.kinds):
            raise KVBenchError(f"{fault}, and none that both reach is asked for")
        option = LEVEL_KINDS[levels[0].kind].option
        advice = f"give one level of one of them, as {option} {levels[0]}"
        raise KVBenchError(
            f"{fault}, and each has several; {advice}, which is compared with each of the other's"
        )


def _kinds_text(policy: Policy) -> str:
    kinds = " or ".join(LEVEL_KINDS[kind].plural for kind in policy.kinds)
    return f"{policy.name} takes {kinds}"


def is_built_in(name: str) -> bool:
    """Tells by its parts whether a name of a record, such as ``snapkv+int8(group=32)``, is of a
    policy of kvbench.

    Nothing is looked up elsewhere: a stranger's run may name a file, whose code would run.
    """
    if name in POLICIES:
        return True
    kinds = {kind_in(part) for part in name.split("+")}
    return kinds <= {*POLICIES, *TREATMENTS, *WAYS}


def check_is_press(policy: Policy) -> None:
    """Raises :class:`KVBenchError` for the full cache where a press is asked for."""
    if policy.name == FULL:
        raise KVBenchError(
            f"{FULL} is the whole cache and no press: name a press of python -m kvbench ls policies"
        )


def press_alone(names: str) -> Policy:
    """Finds the one press that is named. Raises :class:`KVBenchError` for none, for several, and
    for one that quantises or damages."""
    if len(parts := split_outside_brackets(names)) != 1:
        raise KVBenchError(f"this takes one press at a time, and '{names}' names {len(parts)}")
    policy = find_policy(parts[0])
    check_is_press(policy)
    if policy.treatment.changes_rows:
        raise KVBenchError(
            f"{policy.name} quantises or damages the cache, and only a press can be examined"
        )
    return policy


def unfit_for(policies: Sequence[Policy], shape: ModelShape) -> dict[str, str]:
    """Lists the policies that cannot treat a model of that shape, each with one line that says
    so."""
    reasons: dict[str, str] = {}
    for policy in policies:
        try:
            if policy.needs.check_model:
                policy.needs.check_model(shape)
        except PolicyError as error:
            reasons[policy.name] = f"{policy.name}: {error}"
    return reasons


def without(
    policies: Sequence[Policy], missing: Mapping[str, str], names: str | None
) -> list[Policy]:
    """Leaves out policies by name, and prints the reasons. Raises :class:`KVBenchError` with the
    reason if any were named."""
    if missing and (names or DEFAULT).strip() not in (DEFAULT, EVERYTHING):
        raise KVBenchError(f"{next(iter(missing.values()))}: leave it out")
    for reason in missing.values():
        console.print(f"left out: {reason}", soft_wrap=True, markup=False)
    return [policy for policy in policies if policy.name not in missing]


def check_names(policies: Sequence[Policy]) -> None:
    """Raises :class:`KVBenchError` for two policies of one name: records are told apart by it."""
    by_name = dict(POLICIES)
    for policy in policies:
        # A policy of the registry may be among them: it is not a second one of its name.
        if by_name.setdefault(policy.name, policy) is not policy:
            raise KVBenchError(f"two policies are named '{policy.name}': rename yours")


def with_references(chosen: Sequence[Policy], controls: bool = True) -> list[Policy]:
    """Adds before the policies what they are measured against and is not among them: the controls,
    without which there is no board, or of these the full cache alone; and the plain policy inside
    each that protects instructions."""
    names = {policy.name for policy in chosen}
    plain: dict[str, Policy] = {}
    for policy in chosen:
        if policy.around is not None and policy.around.name not in names:
            plain[policy.around.name] = policy.around
    references: Sequence[str] = (FULL,)
    if controls:
        references = REFERENCES
    names |= set(plain)
    before = [POLICIES[name] for name in references if name not in names]
    return [*before, *plain.values(), *chosen]


def at_some_level(
    policies: Sequence[Policy], points: Sequence[Point], everything: bool = False
) -> list[Policy]:
    """Leaves out the controls that take no level of the given kinds. A policy that reaches none of
    the levels is left out where none was named, ``everything``. Raises :class:`KVBenchError` for
    such a policy else: it would have no record."""
    kinds = {point.level.kind for point in points}
    reached: list[Policy] = []
    for policy in policies:
        if policy.kinds and not kinds & set(policy.kinds):
            continue
        if policy.points_among(points):
            reached.append(policy)
        elif not everything:
            levels = [str(point.level) for point in points if point.level.kind in policy.kinds]
            limit = f"it removes at most {policy.levels.highest_ratio:g} of the cache"
            for kind, below in policy.levels.below.items():
                limit = f"its {LEVEL_KINDS[kind].plural} are below {below:g}"
            raise KVBenchError(
                f"{policy.name} reaches none of {', '.join(dict.fromkeys(levels))}: {limit}; ask "
                f"for less, or leave it out"
            )
    return reached


def known_policies() -> Mapping[str, Policy]:
    """Returns the policies of the registry and of installed packages, by name. Raises
    :class:`KVBenchError` for a name that both have."""
    installed = plug_ins()
    if twice := POLICIES.keys() & installed.keys():
        raise KVBenchError(
            f"an installed package brings a policy '{min(twice)}', as kvbench does: rename it"
        )
    return {**POLICIES, **TREATMENTS, **installed}


def check_ratios(command: str, policies: Sequence[Policy]) -> None:
    """Raises :class:`KVBenchError` for a policy that a command cannot use, as it works with ratios
    alone."""
    for policy in policies:
        if not policy.takes_ratios:
            options = " or ".join(LEVEL_KINDS[kind].option for kind in policy.kinds)
            raise KVBenchError(
                f"{command} works with ratios alone, and {policy.name} takes {options}: use run "
                f"for it"
            )


def find_policy(name: str, even_if_broken: bool = False) -> Policy:
    """Finds a policy of the registry, of an installed package, a plug-in, a quantisation or fault
    with its options, or one of them protected or treated, once or more often: ``name+way``. Raises
    :class:`KVBenchError` for a name of none, and for a plug-in that cannot be used.

    Formats may be written as engines do (:func:`spell_out`)."""
    if name in POLICIES:
        return POLICIES[name]
    if (handed := find_handed_policy(name)) is not None:
        return handed
    try:
        name = spell_out(name, QUANTISATION_NAMES)
    except PolicyError as error:
        raise KVBenchError(str(error)) from error
    plain, way = plain_and_way(name)
    if way != PLAIN and not (is_way(way) or is_treatment(way)):
        kinds = "protection, deployment, quantisation or fault"
        unknown = unknown_name(kinds, kind_in(way), [*WAYS, *TREATMENTS])
        raise KVBenchError(f"{plain}+{way}: {unknown}")
    try:
        if way != PLAIN:
            # The last way is taken off first: what is before it is a policy with ways of its own.
            return compose(find_policy(plain), way)
        if is_treatment(name):
            return check_alone(make_treatment(name))
        if is_plug_in(name):
            if even_if_broken:
                return load_even_if_broken(name)
            return load_plug_in(name)
    except PolicyError as error:
        raise KVBenchError(str(error)) from error
    # Installed packages last: to know what they bring, all of their presses are imported.
    by_name = known_policies()
    if name not in by_name:
        near = nearest(kind_in(name), by_name)
        raise KVBenchError(
            f"unknown policy '{name}': {near}python -m kvbench ls policies lists all {len(by_name)}"
        )
    return by_name[name]
