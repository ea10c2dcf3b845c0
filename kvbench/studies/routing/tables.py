"""Registers all tables of the study of routes."""

from kvbench.studies.routing.attention import ATTENTION, ROUTES, STATES
from kvbench.studies.routing.interventions import INTERVENTIONS

TABLES = (ATTENTION, STATES, ROUTES, INTERVENTIONS)
