"""The suite of routes: is the evidence still there, can it be reached, is it used?"""

from datasets_gen import TASKS
from kvbench.studies.declaration import Suite

SUITE = Suite(
    name="routing",
    description="Is the evidence still there, can it be reached, is it used (arXiv 2603.01426)",
    tasks=(TASKS["base"], TASKS["hops"]),
    policies="streaming_llm,snapkv,knorm,tova,h2o",
    tables=("attention", "states", "routes", "interventions"),
    levels={"ratio": "0.3,0.5,0.7,0.8,0.9,0.95"},
    limit=10,  # the fewest of which a page does not say that they may be chance
)
