"""Boards: what the records of a run add up to, with intervals, as rows, curves, a page and a terminal table."""

from leaderboards.asked import Asked, asked_in
from leaderboards.audit import Identical, Unchanged, audit
from leaderboards.board import boards_of
from leaderboards.comparison import build_comparison
from leaderboards.errors import LeaderboardError
from leaderboards.examples import build_examples
from leaderboards.facets import Facet, facets
from leaderboards.failures import Contrast, contrasts
from leaderboards.figures import curve_plot
from leaderboards.gallery import Details, Gallery, gallery
from leaderboards.heat_drawing import save_map
from leaderboards.heatmaps import HeatMap
from leaderboards.imported import Imported, build_imported
from leaderboards.instructions_page import build_instructions, has_orders
from leaderboards.measures import CURVES, F1, GER, HALLUCINATION, REALISED_RATIO, TABLES, Measure
from leaderboards.page import FRONT, build_pages
from leaderboards.paired import Difference, Duel, duels, every_duel
from leaderboards.profiles import Profile, Profiles
from leaderboards.resampling import Blank, Estimate
from leaderboards.results import Results, examples_page
from leaderboards.row import ALL_TASKS, CONTROLS, FULL, SummaryRow
from leaderboards.standings import (
    Against,
    RankInterval,
    Standing,
    all_standings,
    smallest_detectable_difference,
    standings,
)
from leaderboards.summary import PlannedCells, summarise
from leaderboards.terminal import telling, terminal_table
from leaderboards.verdicts import failure_table, verdict_table

__all__ = [
    "ALL_TASKS",
    "CONTROLS",
    "CURVES",
    "F1",
    "FRONT",
    "FULL",
    "GER",
    "HALLUCINATION",
    "REALISED_RATIO",
    "TABLES",
    "Against",
    "Asked",
    "Blank",
    "Contrast",
    "Details",
    "Difference",
    "Duel",
    "Estimate",
    "Facet",
    "Gallery",
    "HeatMap",
    "Identical",
    "Imported",
    "LeaderboardError",
    "Measure",
    "PlannedCells",
    "Profile",
    "Profiles",
    "RankInterval",
    "Results",
    "Standing",
    "SummaryRow",
    "Unchanged",
    "all_standings",
    "asked_in",
    "audit",
    "boards_of",
    "build_comparison",
    "build_examples",
    "build_imported",
    "build_instructions",
    "build_pages",
    "contrasts",
    "curve_plot",
    "duels",
    "every_duel",
    "examples_page",
    "facets",
    "failure_table",
    "gallery",
    "has_orders",
    "save_map",
    "smallest_detectable_difference",
    "standings",
    "summarise",
    "telling",
    "terminal_table",
    "verdict_table",
]
