"""A task of one's own with its scorer: JSON from a log. docs/tasks.md runs it."""

import json

import kvbench

SERVICES = ("billing", "search", "upload", "mail")
LEVELS = ("ERROR", "WARNING")


@kvbench.scorer()
def json_fields(output, gold, question):
    """Valid JSON, and the share of keys that are right with their types and values."""
    try:
        written = json.loads(output)
    except ValueError:
        return 0.0
    wanted = json.loads(gold)
    if not isinstance(written, dict) or written.keys() - wanted.keys():
        return 0.0
    right = [name for name in wanted if written.get(name) == wanted[name]]
    same_types = [type(written[name]) is type(wanted[name]) for name in right]
    return sum(same_types) / len(wanted)


@kvbench.task(
    instruction="Answer with one JSON object alone.", max_new_tokens=64, scorers=[json_fields]
)
def log_json(rng):
    """A line of a log as JSON: its service, its level and its code."""
    lines, entries = [], {}
    for service in rng.sample(SERVICES, 3):
        entry = {"service": service, "level": rng.choice(LEVELS), "code": rng.randint(100, 999)}
        entries[service] = entry
        lines.append(f"{entry['level']} {service} ended with code {entry['code']}.")
    service = rng.choice(list(entries))
    return {
        "context": "\n".join(lines),
        "question": f"What does the log say of {service}? Use the keys service, level and code.",
        "answers": json.dumps(entries[service]),
        "evidence": [line for line in lines if f" {service} " in line],
    }
