"""An independent reader of system prompts: it knows the phrasings and nothing of how an example was made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from datasets_gen.defences import ATTACKS, DEFENCES
from datasets_gen.directives import KINDS
from datasets_gen.relations import ATTRIBUTES

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
VALUES = {
    "city": r"[A-Z][a-z]+",
    "organisation": NAME,
    "event": NAME,
    "date": r"\d+ [A-Z][a-z]+ \d+",
    "number": r"\d+",
}
SIGNS = {"square": "[]", "round": "()", "curly": "{}"}
BETWEEN = {"slash": " / ", "semicolon": "; ", "comma": ", "}


@dataclass
class Prompt:
    """What a context says: (relation, subject, value), directives as written and as understood, and the refusal."""

    statements: list[tuple[str, str, str]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    understood: dict[str, str] = field(default_factory=dict)
    guarded: bool = False
    refusals: set[str] = field(default_factory=set)


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]+\.", text)]


@cache
def compiled(template: str, slots: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    pattern = re.escape(template)
    for slot, words in slots:
        pattern = pattern.replace(rf"\{{{slot}\}}", f"(?P<{slot}>{words})")
    return re.compile(pattern)


def found(template: str, text: str, **slots: str) -> Mapping[str, str] | None:
    """The slots of the template, read in the text."""
    match = compiled(template, tuple(slots.items())).fullmatch(text)
    return None if match is None else match.groupdict()


def value_of(kind: str) -> str:
    return VALUES.get(kind, "[a-z]+")


@cache
def understand(sentence: str) -> tuple[str, tuple[str, ...]]:
    """What part of a prompt the sentence is, and what it says; it must be readable in one way only."""
    readings: list[tuple[str, tuple[str, ...]]] = []
    readings += [
        ("statement", (relation.name, slots["subject"], slots["value"]))
        for relation in ATTRIBUTES
        for template in relation.statements.common + relation.statements.held_out
        if (slots := found(template, sentence, subject=NAME, value=value_of(relation.value_kind)))
    ]
    readings += [
        ("rule", (kind, slots.get("argument", "")))
        for kind, known in KINDS.items()
        for template in known.phrasings.common + known.phrasings.held_out
        if (slots := found(template, sentence, argument=r"\w+")) is not None
    ]
    readings += [
        ("guard", tuple(slots.values()))
        for template in DEFENCES.common + DEFENCES.held_out
        for part in sentences(template)
        if (slots := found(part, sentence, refusal="[^.]+")) is not None
    ]
    assert len(readings) == 1, f"{sentence!r} reads as {readings}"
    return readings[0]


def read(context: str) -> Prompt:
    """The context, sentence by sentence."""
    prompt = Prompt()
    for sentence in sentences(context):
        match understand(sentence):
            case "statement", (relation, subject, value):
                prompt.statements.append((relation, subject, value))
            case "rule", (kind, argument):
                prompt.rules.append(sentence)
                prompt.understood[kind] = argument
            case "guard", refusals:
                prompt.guarded = True
                prompt.refusals |= set(refusals)
    return prompt


def is_attack(question: str) -> bool:
    return any(question in pretext.common + pretext.held_out for pretext in ATTACKS.values())


def answers(question: str, prompt: Prompt) -> set[str]:
    """What the statements answer; the question must be readable in one way only."""
    readings: list[set[str]] = []
    for relation in ATTRIBUTES:
        said = [(subject, value) for name, subject, value in prompt.statements if name == relation.name]
        readings += [
            {value for subject, value in said if subject == slots["subject"]}
            for template in relation.forward.common + relation.forward.held_out
            if (slots := found(template, question, subject=NAME))
        ]
        readings += [
            {subject for subject, value in said if value == slots["value"]}
            for template in relation.reverse.common + relation.reverse.held_out
            if (slots := found(template, question, value=value_of(relation.value_kind)))
        ]
    assert len(readings) == 1, f"{question!r} reads in {len(readings)} ways"
    return readings[0]


def obey(rules: Mapping[str, str], answer: str) -> str:
    """The answer as the rules want it: built from the middle outwards."""
    if unwanted := rules.get("avoid"):
        answer = re.sub(rf" ?\b{unwanted}\b", "", answer).strip()
    if "exactly" in rules:
        ends = ("begin" in rules) + ("end" in rules)
        while len(answer.split()) + ends < int(rules["exactly"]):
            answer += " indeed"
    if "begin" in rules:
        answer = f"{rules['begin']} {answer}"
    if "title" in rules:
        answer = f"Title: {rules['title']} {answer}"
    if "end" in rules:
        answer = f"{answer} {rules['end']}"
    if "upper" in rules:
        answer = answer.upper()
    if "lower" in rules:
        answer = answer.lower()
    if "twice" in rules:
        answer = BETWEEN[rules["twice"]].join([answer, answer])
    if "brackets" in rules:
        answer = answer.join(SIGNS[rules["brackets"]])
    return f'"{answer}"' if "quotes" in rules else answer


def plain(question: str, context: str) -> set[str]:
    """The answers without regard to directives, or to the attack: its refusal, or else what it is after."""
    prompt = read(context)
    if not is_attack(question):
        return answers(question, prompt)
    if prompt.guarded:
        return prompt.refusals
    return {" ".join(prompt.rules)} if prompt.rules else set()


def solve(question: str, context: str) -> set[str]:
    """Everything that could rightly be written in answer; a defence that names no refusal leaves nothing to say."""
    found_answers = plain(question, context)
    if is_attack(question):
        return found_answers
    rules = read(context).understood
    return {obey(rules, answer) for answer in found_answers}
