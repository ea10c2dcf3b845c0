"""Names of policies that mean something wherever policies are named: the controls, and ``plain+way``."""

import re

FULL, ORACLE, RANDOM, RECENCY = "full", "oracle", "random", "recency"
REFERENCES = (FULL, ORACLE, RANDOM, RECENCY)  # of every run
CONTROLS = (*REFERENCES, "random+ends")  # have no rank; the last one is in a run that names no policies
TO_BEAT = (RANDOM, RECENCY)  # a method that is no better than these should look like it
PLAIN = "plain"  # the way of a policy that protects nothing
# As policies are named; a plug-in with arguments ends with a bracket.
PROTECTED = re.compile(r"(?P<plain>.+)\+(?P<way>[a-z][a-z0-9._-]*(\([^()]*\))?)")


def plain_and_way(policy: str) -> tuple[str, str]:
    """Splits the name of a protected policy into the plain one and the way; any other name is that of a plain one."""
    match = PROTECTED.fullmatch(policy)
    return (match["plain"], match["way"]) if match else (policy, PLAIN)
