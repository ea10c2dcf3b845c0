"""``python docs/scripts/tables.py`` writes the tables of the README and of docs anew.

A table stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a test fails when one has
drifted."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel

# Run by its path, a script finds its own folder alone: the root holds the packages.
sys.path.insert(0, str(Path(__file__).parents[2]))

from datasets_gen import unknown_name
from docs.scripts.board_table import board
from docs.scripts.engines import engines
from docs.scripts.first_press import first_press
from docs.scripts.library import library
from docs.scripts.markdown import NOT_MEASURED, items, table
from docs.scripts.needles import needles, needles_on_gemma3
from docs.scripts.papers import Command, registers
from docs.scripts.passports import forecast_scores, forecasts, outcomes
from kvbench.cli.program import COMMANDS
from kvbench.commands.ls import LISTINGS
from kvbench.system.errors import KVBenchError
from leaderboards.claims.registry import claims
from leaderboards.claims.verdict import Count
from policies.declaration.names import paper_address
from policies.faults.options import FaultOptions
from policies.faults.registry import FAULT_KINDS as FAULTS
from policies.quantisation.quantisation import QuantisationOptions
from policies.quantisation.registry import QUANTISATION_KINDS as QUANTISATIONS
from policies.treatments.deployed import DEPLOYMENTS
from policies.treatments.options import option_text


def faults() -> str:
    """Returns what a damaged row is under every kind of fault, with the options that are its
    own."""
    rows = []
    for kind in FAULTS.values():
        options = _options(kind.options, FaultOptions)
        rows.append((f"`{kind.name}`", kind.description, _code(options)))
    return table(("fault", "what a damaged row is", "options of its own"), rows)


def log_json() -> str:
    """Returns the example of a task with a scorer of one's own."""
    source = (Path(__file__).parent / "log_json.py").read_text(encoding="utf-8")
    _, _, code = source.partition("\n\n")
    return f"```python\n{code.strip()}\n```"


def quantisations() -> str:
    """Returns every kind of quantisation with its options and their defaults; kinds with equal ones
    share a line."""
    names: dict[str, list[str]] = {}
    for kind in QUANTISATIONS.values():
        options = _options(kind.options, QuantisationOptions)
        names.setdefault(options, []).append(f"`{kind.name}`")
    rows = [(", ".join(kinds), _code(options)) for options, kinds in names.items()]
    return table(("quantisations", "options"), rows)


def _code(options: str) -> str:
    """Marks each of the options as code, so that a cell breaks between two of them."""
    if not options:
        return NOT_MEASURED
    return ", ".join(f"`{option}`" for option in options.split(", "))


def deployments() -> str:
    """Returns every way to deploy a policy, as it is written behind the name of one."""
    rows = []
    for way in DEPLOYMENTS.values():
        options = _options(way.options) or "-"
        rows.append((f"`+{way.name}`", way.description, options, way.paper))
    return table(("way", "what is kept", "options", "paper"), rows)


def options_of_faults() -> str:
    return _code(_options(FaultOptions)) + "."


def _options(declared: type[BaseModel], common: type[BaseModel] = BaseModel) -> str:
    """Lists the options with their defaults that are not the same among the common ones."""
    shared = common.model_fields
    options = []
    for name, field in declared.model_fields.items():
        if name in shared and shared[name].default == field.default:
            continue
        default = "none" if field.default is None else option_text(field.default)
        options.append(f"{name}={default}")
    return ", ".join(options)


DOCS = Path(__file__).parents[1]
# Registers, as the commands of runs.txt wrote them, natural models first.
MEASURED = DOCS / "claims"
REFERENCE = "reference"
IN_PART = "in part"  # what is said of a claim whose parts have several verdicts
COUNTED = {
    "holds": "hold",
    "does not hold": "do not hold",
    IN_PART: "hold in part",
    "undecided": "are undecided",
}
UNMET = "precondition not met"  # said of a claim of which no part could be decided
SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?", IN_PART: "±", UNMET: "∅"}


def texts() -> str:
    """Returns a table of the texts, by the letters with which their claims begin."""
    rows = {}
    for claim in claims().values():
        text = claim.text
        rows[text.letter] = (text.letter, text.title, text.models)
    return table(("claims", "text", "what it measured"), rows.values())


def verdicts_in_short() -> str:
    """Counts the verdicts on all claims, in a row for the first natural model and one for the
    reference."""
    rows = []
    by_model = examined()
    for model in (next(iter(by_model)), REFERENCE):
        counts = Counter(_verdicts(by_model[model]).values())
        del counts[UNMET]
        by_verdict = [counts[verdict] for verdict in COUNTED]
        rows.append((f"`{model}`", counts.total(), *by_verdict))
    return table(("model", "claims", *COUNTED.values()), rows)


def verdicts() -> str:
    """Returns a table of the claims: what the text says, and the verdict on each model."""
    registers = examined()
    signs: dict[str, list[str]] = {name: [] for name in claims()}
    models, decided = [], []
    for model, of_model in registers.items():
        models.append(f"`{model}`")
        verdicts = _verdicts(of_model)
        for name in signs:
            sign = SIGNS[verdicts[name]] if name in verdicts else NOT_MEASURED
            signs[name].append(sign)
        count = _count_decided(of_model)
        decided.append(f"{count.decided} of {count.decidable}")
    rows = [(name, claim.words, *signs[name]) for name, claim in claims().items()]
    rows.append(("all", "decided, of the claims whose precondition the model meets", *decided))
    return table(("claim", "what the text says", *models), rows)


def examined() -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of all registers of each model."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for line in (MEASURED / "runs.txt").read_text(encoding="utf-8").splitlines():
        if (path := MEASURED / f"{line.split()[0]}.json").is_file():
            register = json.loads(path.read_text(encoding="utf-8"))
            by_model.setdefault(register["model"], []).extend(register["claims"])
    return by_model


def _verdicts(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the verdict on each claim; one whose parts have several holds in part."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        if row["claim"] in claims():
            verdict = row["claim_verdict"] if row.get("precondition_met", True) else UNMET
            kinds.setdefault(row["claim"], set()).add(verdict)
    verdicts = {}
    for claim, of_parts in kinds.items():
        if len(of_parts) == 1:
            (verdicts[claim],) = of_parts
        elif of_parts == {"undecided", UNMET}:
            verdicts[claim] = "undecided"
        else:
            verdicts[claim] = IN_PART
    return verdicts


def _count_decided(rows: Iterable[Mapping[str, Any]]) -> Count:
    """Counts the claims that are decided. Earlier registers do not say whether a precondition is
    met."""
    verdicts = []
    for row in rows:
        if row["claim"] in claims():
            is_met = row.get("precondition_met", True)
            verdicts.append((row["claim"], row["claim_verdict"], is_met))
    return Count.of(verdicts)


PRESS = DOCS / "scripts" / "loud_values.py"
OF_FAULTS_PAGE = ("quantisation", "fault")  # families with tables of their own
# By the way it runs.
NEEDS = {"private": "a prefill of its own", "instructions": "a prompt with instructions"}


def metrics() -> str:
    return items((f"`{row['metric']}`", row["definition"]) for row in LISTINGS["metrics"]().plain())


def tasks() -> str:
    """Returns what each task stresses, and its chance level."""
    rows = []
    for row in LISTINGS["tasks"]().plain():
        chance = row["chance, percent"]
        shown = NOT_MEASURED if chance is None else f"{chance:.1f}"
        rows.append((f"`{row['task']}`", row["what it stresses"], shown))
    return table(("task", "what it stresses", "chance, percent"), rows)


def policies() -> str:
    """Returns a table of the policies that evict, family after family; those of a default run are
    bold."""
    by_family: dict[str, list[tuple[str, ...]]] = {}
    for row in LISTINGS["policies"]().plain():
        family = row["family"]
        if family in OF_FAULTS_PAGE:
            continue
        ways = row["how it runs"].split(", ")
        name = f"**`{row['policy']}`**" if "default" in ways else f"`{row['policy']}`"
        paper = "–" if row["paper"] == "-" else _linked(row["paper"])
        line = (name, row["what it keeps"], paper, family, _needs(ways))
        by_family.setdefault(family, []).append(line)
    lines = chain.from_iterable(by_family.values())
    return table(("policy", "what it keeps", "paper", "family", "what it needs"), lines)


def _linked(paper: str) -> str:
    """Returns the citation as a link, if it begins with a registrar of papers."""
    address = paper_address(paper)
    return f"[{paper}]({address})" if address else paper


def _needs(ways: Iterable[str]) -> str:
    """Says what must be there for a policy besides a model and a context."""
    needs = []
    for way in ways:
        if way in NEEDS:
            needs.append(NEEDS[way])
        elif way.startswith("needs "):
            needs.append(way.removeprefix("needs "))
    return "; ".join(needs) or "–"


def papers() -> str:
    """Returns the register of the texts' tables and figures: a section for each text, a table below
    each command."""
    titles = {claim.text.letter: claim.text for claim in claims().values()}
    parts = []
    for letter, register in registers().items():
        parts.append(f"## {letter}: {titles[letter].title}\n\nTheirs: {titles[letter].models}.")
        for command in register.commands:
            parts.append(f"```sh\n{command.line}\n```\n\n{_table_of_items(command)}")
        if register.to_come:
            texts = {f"**{name}**": text for name, text in register.to_come.items()}
            parts.append(f"To come:\n\n{items(texts.items())}")
    return "\n\n".join(parts)


def _table_of_items(command: Command) -> str:
    """Returns a row for each table and figure of a text that a command computes anew."""
    rows = []
    for item in command.items:
        name = f"**{item.name}**: {item.shows}"
        columns = ", ".join(f"`{column}`" for column in item.column_names)
        rows.append((name, item.section, f"`{item.sheet}`: {columns}", item.differs))
    return table(
        ("theirs", f"section of `{command.page}`", "CSV: columns", "how ours differs, and why"),
        rows,
    )


def commands() -> str:
    return items((f"`{name}`", text) for name, text in COMMANDS.items())


def press() -> str:
    """Returns the press of the tutorial, which is a file so that it can be run."""
    return f"```python\n{PRESS.read_text()}```"


def performance() -> str:
    """Returns the rows that ``make suite`` measured, with the machine."""
    measured = json.loads((DOCS / "performance.json").read_text(encoding="utf-8"))
    rows = []
    for row in measured["rows"]:
        number = f"{row['measured']:.3g} {row['unit']}".strip()
        if row["note"]:
            number += f", {row['note']}"
        sign = "≥" if row["at_least"] else "≤"
        answer = "yes" if row["met"] else "**no**"
        rows.append((row["name"], number, f"{sign} {row['target']:g}", answer))
    return f"{measured['machine']}.\n\n{table(('row', 'measured', 'target', 'met'), rows)}"


def gpu() -> str:
    """Returns what ``make gpu`` measured on a card, a line for each row, and what ``plan`` said of
    it beforehand."""
    content = json.loads((DOCS / "gpu.json").read_text(encoding="utf-8"))
    lines = []
    for row in content["rows"]:
        note = f" ({row['note']})" if row["note"] else ""
        if row["measured"] is None:
            lines.append((row["row"], f"not measured{note}"))
            continue
        numbers = f"{row['measured']:.3g} {row['unit']}"
        if row["plan"] is not None:
            numbers += f", by `plan` {row['plan']:.3g}"
        measured_on = f"measured on {content['card']}, {content['date']}"
        lines.append((row["row"], f"{numbers}{note}, {measured_on}"))
    return items(lines)


MAKERS = (
    library,
    engines,
    log_json,
    first_press,
    tasks,
    policies,
    metrics,
    commands,
    press,
    performance,
    gpu,
    faults,
    options_of_faults,
    quantisations,
    deployments,
    papers,
    board,
    needles,
    needles_on_gemma3,
    forecasts,
    forecast_scores,
    outcomes,
    texts,
    verdicts,
    verdicts_in_short,
)
# By the name that a page calls the table by, which is the function's in words.
BLOCKS: Mapping[str, Callable[[], str]] = {make.__name__.replace("_", " "): make for make in MAKERS}


ROOT = DOCS.parent
BEGIN = re.compile(r"<!-- begin (.+?) -->\n")
BLOCK = re.compile(r"(<!-- begin (.+?) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages() -> list[Path]:
    """Returns the documents that people read: the README, the index, and the others in the order of
    the index."""
    index = DOCS / "index.md"
    listed = [DOCS / name for name in re.findall(r"\]\((\w+\.md)\)", index.read_text())]
    return [ROOT / "README.md", index, *listed]


def blocks_of(text: str) -> list[str]:
    """Returns the names of the tables of a page, in order."""
    return BEGIN.findall(text)


def fill_tables(text: str, page: str) -> str:
    """Writes every table of a page anew; raises :class:`KVBenchError` for one that is unknown or
    has no end."""
    complete = {match[2] for match in BLOCK.finditer(text)}
    for name in blocks_of(text):
        if name not in BLOCKS:
            raise KVBenchError(f"{page}: {unknown_name('table', name, BLOCKS)}")
        if name not in complete:
            raise KVBenchError(
                f"{page}: the table '{name}' has no end: add <!-- end {name} --> behind it"
            )
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(fill_tables(page.read_text(), page.name))
