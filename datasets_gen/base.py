"""Task ``base``: a short passage that binds attributes tightly to a few people."""

import random

from datasets_gen.lexicon import draw_people
from datasets_gen.passage import deal_facts, write_passage
from datasets_gen.questions import Asker, attribute_question, draw_different
from datasets_gen.relations import ATTRIBUTES, draw_relations
from datasets_gen.task import Draft, Task, Wanted
from datasets_gen.wording import Wording

# (fewest, most) people and facts about each, and phrasings in use, by level; the last is the task. First the relation
# alone tells the answer, then the name alone, then both are needed.
SIZES = (
    ((1, 1), (2, 4), 1),
    ((2, 4), (1, 1), 1),
    ((2, 2), (2, 3), 1),
    ((2, 3), (2, 3), 3),
    ((2, 4), (3, 4), 3),
    ((3, 4), (3, 5), 3),
)
UNANSWERABLE_SHARE = 0.15
REVERSE_SHARE = 0.4


def make(rng: random.Random, wanted: Wanted) -> Draft:
    people_range, facts_range, phrasings = SIZES[wanted.level]
    wording = Wording(phrasings, wanted.held_out, wanted.taught)
    ask = Asker(rng, wording)
    people = draw_people(rng, wanted.split, rng.randint(*people_range))
    # All draw on one pool, one larger than the most that anyone has: most attributes are said of several people, and
    # the kind of value asked for does not give the answer away.
    pool = rng.sample(ATTRIBUTES, facts_range[1] + 1)
    facts = deal_facts(rng, people, [draw_relations(rng, pool, rng.randint(*facts_range)) for _ in people])
    passage = write_passage(rng, facts, wording)
    questions = draw_different(
        min(wanted.questions, 2 * len(facts)),
        lambda: attribute_question(ask, wanted.split, passage, UNANSWERABLE_SHARE, REVERSE_SHARE),
    )
    return Draft(passage.text, passage.stated_values(), questions)


BASE = Task(
    name="base",
    version="3.0.0",
    description="Short passage, tightly bound attributes of three or four people",
    make=make,
    top_level=len(SIZES) - 1,
    chance=15.2,
    contexts={"quick": 8, "paper": 200},
    paper="arXiv 2603.01426",
)
