"""Intervals, tests and the four numbers of a board, all over contexts.

Contexts are the units, since questions about one context are not independent:
``context_sums`` adds up the answers about each, ``bootstrap`` and ``intervals`` make the interval
of one mean. On these rest the four numbers by which a board judges policies:

- ``paired_difference``: two policies on the same contexts, with interval and test,
- ``area``: the mean height of a curve over the realised ratio,
- ``rank``: the place among the policies, and who is best in a column,
- ``safe_ratio``: up to which level a loss is below what is tolerated.

``corrections`` corrects p-values, ``power`` says what so many contexts can show, and
``standard_tests``, ``shares`` and ``series`` serve the tables of studies."""
