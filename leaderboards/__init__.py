"""Boards: what the records of a run add up to, with intervals, as rows, curves, a page and a terminal table."""

from leaderboards.audit import Identical, Unchanged, audit
from leaderboards.board import boards_of
from leaderboards.comparison import build_comparison
from leaderboards.downloads import (
    board_sheet,
    cells_sheet,
    contrasts_sheet,
    duels_sheet,
    imported_sheet,
    questions_sheet,
)
from leaderboards.errors import LeaderboardError
from leaderboards.examples import build_examples
from leaderboards.facets import Facet, facets
from leaderboards.failures import Contrast, contrasts
from leaderboards.figures import curve_plot
from leaderboards.gallery import Details, Gallery, gallery
from leaderboards.heat_drawing import save_map
from leaderboards.heatmaps import HeatMap
from leaderboards.imported import IMPORTED, Imported, build_imported
from leaderboards.instructions_page import build_instructions, has_orders
from leaderboards.levels import with_levels
from leaderboards.measures import F1, GER, HALLUCINATION, REALISED_RATIO
from leaderboards.method import Downloads, Method, PolicyEntry, RunEntry, TaskEntry, TaskExample, build_method
from leaderboards.page import FRONT, METHOD, build_pages
from leaderboards.paired import Difference, Duel, duels, every_duel
from leaderboards.profiles import Profile, Profiles
from leaderboards.resampling import Blank, Estimate
from leaderboards.results import Results, examples_page
from leaderboards.row import ALL_TASKS, SummaryRow
from leaderboards.sheets import Sheet, file_name, joined
from leaderboards.standings import (
    Against,
    Found,
    RankInterval,
    Standing,
    all_standings,
    smallest_detectable_difference,
    standings,
)
from leaderboards.summary import PlannedCells, summarise
from leaderboards.templating import linked
from leaderboards.terminal import telling, terminal_table
from leaderboards.verdicts import failure_table, verdict_table
from metrics import CURVES, TABLES, Measure

__all__ = [
    "ALL_TASKS",
    "CURVES",
    "F1",
    "FRONT",
    "GER",
    "HALLUCINATION",
    "IMPORTED",
    "METHOD",
    "REALISED_RATIO",
    "TABLES",
    "Against",
    "Blank",
    "Contrast",
    "Details",
    "Difference",
    "Downloads",
    "Duel",
    "Estimate",
    "Facet",
    "Found",
    "Gallery",
    "HeatMap",
    "Identical",
    "Imported",
    "LeaderboardError",
    "Measure",
    "Method",
    "PlannedCells",
    "PolicyEntry",
    "Profile",
    "Profiles",
    "RankInterval",
    "Results",
    "RunEntry",
    "Sheet",
    "Standing",
    "SummaryRow",
    "TaskEntry",
    "TaskExample",
    "Unchanged",
    "all_standings",
    "audit",
    "board_sheet",
    "boards_of",
    "build_comparison",
    "build_examples",
    "build_imported",
    "build_instructions",
    "build_method",
    "build_pages",
    "cells_sheet",
    "contrasts",
    "contrasts_sheet",
    "curve_plot",
    "duels",
    "duels_sheet",
    "every_duel",
    "examples_page",
    "facets",
    "failure_table",
    "file_name",
    "gallery",
    "has_orders",
    "imported_sheet",
    "joined",
    "linked",
    "questions_sheet",
    "save_map",
    "smallest_detectable_difference",
    "standings",
    "summarise",
    "telling",
    "terminal_table",
    "verdict_table",
    "with_levels",
]
