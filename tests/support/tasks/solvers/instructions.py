"""An independent reader of system prompts: it knows the phrasings and nothing of how an example was
made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from datasets_gen.examples.directives import DIRECTIVE_KINDS
from datasets_gen.examples.wording import Phrasings
from datasets_gen.writing.passage import ATTRIBUTES
from datasets_gen.writing.system_prompt import ATTACKS, DEFENCES
from tests.support.tasks.solvers.text import NAME, matches, sentences, value_of

SIGNS = {"square": "[]", "round": "()", "curly": "{}"}
BETWEEN = {"slash": " / ", "semicolon": "; ", "comma": ", "}


@dataclass
class Prompt:
    """What a context says: (relation, subject, value), directives as written and as understood, and
    the refusal."""

    statements: list[tuple[str, str, str]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    understood: dict[str, str] = field(default_factory=dict)
    guarded: bool = False
    refusals: set[str] = field(default_factory=set)


@cache
def understand(sentence: str) -> tuple[str, tuple[str, ...]]:
    """What part of a prompt the sentence is, and what it says; it must be readable in one way
    only."""
    readings: list[tuple[str, tuple[str, ...]]] = []
    for relation in ATTRIBUTES:
        for _, words in matches(
            relation.statements, sentence, subject=NAME, value=value_of(relation.value_kind)
        ):
            readings.append(("statement", (relation.name, words["subject"], words["value"])))
    for kind, known in DIRECTIVE_KINDS.items():
        for _, words in matches(known.phrasings, sentence, argument=r"\w+"):
            readings.append(("rule", (kind, words.get("argument", ""))))
    for defence in DEFENCES.common + DEFENCES.held_out:
        for _, words in matches(
            Phrasings(tuple(sentences(defence)), ()), sentence, refusal="[^.]+"
        ):
            readings.append(("guard", tuple(words.values())))
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
        said = [
            (subject, value) for name, subject, value in prompt.statements if name == relation.name
        ]
        for _, words in matches(relation.forward, question, subject=NAME):
            readings.append({value for subject, value in said if subject == words["subject"]})
        for _, words in matches(relation.reverse, question, value=value_of(relation.value_kind)):
            readings.append({subject for subject, value in said if value == words["value"]})
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
    """The answers without regard to directives, or to the attack: its refusal, or else what it is
    after."""
    prompt = read(context)
    if not is_attack(question):
        return answers(question, prompt)
    if prompt.guarded:
        return prompt.refusals
    return {" ".join(prompt.rules)} if prompt.rules else set()


def solve(question: str, context: str) -> set[str]:
    """Everything that could rightly be written in answer; a defence that names no refusal leaves
    nothing to say."""
    found_answers = plain(question, context)
    if is_attack(question):
        return found_answers
    rules = read(context).understood
    return {obey(rules, answer) for answer in found_answers}
