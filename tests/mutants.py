"""Shows that the tests notice faults: puts one small fault at a time into a copy of the tree and
runs the tests that should fail.

``make mutants`` tries all of them and fails if a fault survives; ``python -m tests.mutants WORD
...`` tries those whose file or new text holds one of the words. Pytest does not collect this file,
but ``tests/test_mutants.py`` checks that every fault still fits its file."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "kvbench",
    "leaderboards",
    "policies",
    "datasets_gen",
    "tests",
    "docs",
    "README.md",
    "pyproject.toml",
)
LIMIT = 600  # seconds for the tests of one mutant: a fault that makes a loop endless is noticed too

ENGINE, STORE = "kvbench/engine", "kvbench/store"
METRICS, STATISTICS, AGGREGATE = (
    "leaderboards/metrics",
    "leaderboards/statistics",
    "leaderboards/aggregate",
)
BOARDS = "leaderboards/boards"
PAGES, DOWNLOADS, TERMINAL = "leaderboards/pages", "leaderboards/downloads", "leaderboards/terminal"


@dataclass(frozen=True)
class Mutant:
    """One fault: the only place of ``file`` that reads ``old`` reads ``new``, and ``killer``, a
    test, fails."""

    file: str
    old: str
    new: str
    killer: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()} → {self.new.strip() or 'nothing'}"


MUTANTS = (
    # Which tokens are kept.
    Mutant(
        f"{ENGINE}/treat/keep.py",
        "else self._rank < count",
        "else self._rank <= count",
        "tests/engine/treat/test_keep.py::test_one_sort_keeps_for_every_count_what_kvpress_keeps",
    ),
    Mutant(
        f"{ENGINE}/treat/keep.py",
        "if count in self._tied else",
        "if False else",
        "tests/engine/treat/test_keep.py::test_one_sort_keeps_for_every_count_what_kvpress_keeps",
    ),
    Mutant(
        f"{ENGINE}/treat/keep.py",
        "bool(same & distinct)",
        "bool(same)",
        "tests/engine/treat/test_keep.py::test_a_row_returned_twice_is_a_rewrite",
    ),
    Mutant(
        f"{ENGINE}/treat/keep.py",
        "        return LayerCache(keep, heads * rows)\n    ",
        "        return LayerCache(keep, int(keep.sum()))\n    ",
        "tests/engine/treat/test_keep.py::test_masked_rows_are_not_read_but_held",
    ),
    # What a fault draws.
    Mutant(
        "policies/faults/fault.py",
        "torch.arange(end, device=device) * HEADS + head",
        "torch.arange(end, device=device) + head",
        "tests/policies/test_fault_draws.py::test_a_place_has_the_same_numbers_alone_in_a_batch_and_behind_a_press",
    ),
    Mutant(
        "policies/faults/counter_based.py",
        "    shifted &= 2 ** (64 - shift) - 1\n",
        "",
        "tests/policies/test_fault_draws.py::test_numbers_are_those_of_plain_python",
    ),
    # What a branch reads while its answers are decoded.
    Mutant(
        f"{ENGINE}/decode/bundle.py",
        "same & (places <= query_places)",
        "(places <= query_places)",
        "tests/engine/decode/test_wave.py::test_attention_of_questions_by_hand",
    ),
    Mutant(
        f"{ENGINE}/decode/bundle.py",
        'mask[..., context].masked_fill_(hidden, float("-inf"))',
        "pass",
        "tests/engine/decode/test_wave.py::test_attention_of_questions_by_hand",
    ),
    Mutant(
        f"{ENGINE}/decode/bundle.py",
        "storage[layer][rows.to(smaller.device), :, :end]",
        "storage[layer][: len(rows), :, :end]",
        "tests/engine/decode/test_wave.py::test_looking_less_often_for_ended_answers_changes_none",
    ),
    Mutant(
        f"{ENGINE}/decode/bundle.py",
        "self.row_numbers = [self.row_numbers[row] for row in rows.tolist()]",
        "self.row_numbers = list(range(len(rows)))",
        "tests/engine/decode/test_step_treatment.py::test_what_it_writes_is_read_at_every_later_step",
    ),
    Mutant(
        f"{ENGINE}/decode/loop.py",
        "ended & ~forced[numbers] if any_forced else ended",
        "ended",
        "tests/engine/decode/test_step_treatment.py::test_an_end_token_within_a_right_answer_does_not_end_it",
    ),
    Mutant(
        f"{ENGINE}/decode/loop.py",
        "        source.treat(step, numbers, done)\n",
        "",
        "tests/engine/decode/test_step_treatment.py::test_what_it_writes_is_read_at_every_later_step",
    ),
    # The likelihood of right answers, and presses that write where they should not.
    Mutant(
        f"{ENGINE}/decode/columns.py",
        "[row.of.next_position + len(ids) for ids",
        "[row.of.next_position for ids",
        "tests/engine/decode/test_likelihood.py::test_it_is_that_of_a_plain_pass",
    ),
    Mutant(
        f"{ENGINE}/decode/loop.py",
        "sum(self.nats) / len(self.nats)",
        "sum(self.nats)",
        "tests/engine/decode/test_likelihood.py::test_it_is_that_of_a_plain_pass",
    ),
    Mutant(
        f"{ENGINE}/decode/loop.py",
        "self._counted[numbers] > step",
        "self._counted[numbers] >= step",
        "tests/engine/decode/test_step_treatment.py::test_what_it_writes_is_read_at_every_later_step",
    ),
    Mutant(
        f"{ENGINE}/treat/shared.py",
        "copies.of(name, getattr(inputs, name)) for name",
        "getattr(inputs, name) for name",
        "tests/engine/treat/test_engine_faults.py::test_a_press_that_writes_into_its_inputs_harms_no_other",
    ),
    # Metrics.
    Mutant(
        f"{METRICS}/judges/naming.py",
        "bool(items) and all(_is_named(item, text) for item in items)",
        "any(_is_named(item, text) for item in items)",
        "tests/metrics/test_labelled_answers.py::test_the_judge_says_what_a_reader_says_of_99_in_100_answers",
    ),
    Mutant(
        f"{METRICS}/judges/text.py",
        "(len(output_words) + len(gold_words))",
        "(len(output_words) + len(output_words))",
        "tests/metrics/test_metrics.py::test_token_f1_of_hand_computed_cases",
    ),
    Mutant(
        f"{METRICS}/judges/text.py",
        "and not _names_rival(answer, *values)",
        "or _names_rival(answer, *values)",
        "tests/metrics/test_labelled_answers.py::test_the_judge_says_what_a_reader_says_of_99_in_100_answers",
    ),
    Mutant(
        f"{METRICS}/judges/spoken.py",
        "output[: opening.start()] if opening",
        "output if opening",
        "tests/metrics/test_labelled_answers.py::test_the_judge_says_what_a_reader_says_of_99_in_100_answers",
    ),
    Mutant(
        f"{METRICS}/answers.py",
        'sample.full["right"]',
        'sample["right"]',
        "tests/metrics/test_harm.py::test_every_share_is_that_of_a_hand",
    ),
    Mutant(
        f"{METRICS}/judges/text.py",
        "f1 = em = 100.0 * abstained",
        "f1 = em = 0.0",
        "tests/metrics/test_metrics.py::test_verdicts",
    ),
    Mutant(
        f"{METRICS}/routing.py",
        "np.ceil(255",
        "np.round(255",
        "tests/metrics/test_metrics.py::test_kept_shares_are_rounded_up_so_that_nothing_else_looks_evicted",
    ),
    Mutant(
        f"{METRICS}/inputs.py",
        "np.all(by_layer, axis=0)",
        "np.any(by_layer, axis=0)",
        "tests/metrics/test_metrics.py::test_routing_metrics_of_a_hand_made_mask",
    ),
    Mutant(
        f"{METRICS}/leakage.py",
        ".score(protected, output)",
        ".score(output, protected)",
        "tests/metrics/test_metrics.py::test_leakage_is_the_recall_of_the_longest_common_subsequence",
    ),
    # Statistics.
    Mutant(
        f"{STATISTICS}/intervals.py",
        "mean = (self.contexts * self.mean + value) / (self.contexts + 1)",
        "mean = self.mean",
        "tests/statistics/test_intervals.py::test_the_effective_number_is_that_of_a_hand",
    ),
    Mutant(
        f"{STATISTICS}/intervals.py",
        "number = effective_number((up, 1.0), (down, 0.0))",
        "number = effective_number((up, 0.0), (down, 0.0))",
        "tests/statistics/test_intervals.py::test_intervals_of_losses_hold_the_truth_and_a_loss_is_not_called_safe",
    ),
    Mutant(
        f"{STATISTICS}/intervals.py",
        "correlation = -np.minimum(1.0, np.sqrt(odds))",
        "correlation = np.minimum(1.0, np.sqrt(odds))",
        "tests/statistics/test_intervals.py::test_where_every_context_is_worse_it_is_the_sign_test_turned_round",
    ),
    Mutant(
        f"{STATISTICS}/bootstrap.py",
        "percentile_intervals(means[None], level)",
        "percentile_intervals(means[None], 2 * level - 1)",
        "tests/aggregate/test_leaderboards.py::test_the_interval_agrees_with_a_slow_bootstrap",
    ),
    Mutant(
        f"{STATISTICS}/bootstrap.py",
        "draws = count_draws(clusters)\n",
        "draws = clusters\n",
        "tests/statistics/test_statistics.py::test_intervals_hold_the_truth_as_often_as_is_said",
    ),
    Mutant(
        f"{STATISTICS}/context_sums.py",
        "weights = np.ones(values.shape)",
        "weights = 1 / np.bincount(contexts)[contexts]",
        "tests/aggregate/test_leaderboards.py::test_the_interval_agrees_with_a_slow_bootstrap",
    ),
    Mutant(
        f"{STATISTICS}/bootstrap.py",
        "draws = count_draws(clusters)\n",
        "draws = 4 * clusters\n",
        "tests/statistics/test_statistics.py::test_the_standard_error_of_the_bootstrap_is_the_published_one",
    ),
    Mutant(
        f"{STATISTICS}/bootstrap.py",
        'f"{seed}/{task}".encode()',
        'f"{seed}".encode()',
        "tests/aggregate/test_leaderboards.py::test_the_interval_over_tasks_resamples_each_task_on_its_own",
    ),
    Mutant(
        f"{STATISTICS}/corrections.py",
        "np.maximum.accumulate(ordered * remaining)",
        "np.maximum.accumulate(ordered * len(family))",
        "tests/statistics/test_statistics.py::test_holm_is_that_of_a_hand",
    ),
    Mutant(
        f"{STATISTICS}/corrections.py",
        "levels[kept[0] :] = levels[kept[0]]",
        "pass",
        "tests/statistics/test_subset_means.py::test_intervals_leave_out_0_exactly_where_the_corrected_p_does",
    ),
    Mutant(
        f"{STATISTICS}/safe_ratio.py",
        "if largest < tolerance",
        "if mean < tolerance",
        "tests/statistics/test_statistics.py::test_contexts_that_agree_say_what_they_exclude_and_how_many_more_are_needed",
    ),
    Mutant(
        f"{STATISTICS}/area.py",
        "heights[:, :-1] + shares * rises / 2",
        "heights[:, :-1] + rises / 2",
        "tests/statistics/test_statistics.py::test_an_area_ends_between_two_points_where_it_is_asked_to",
    ),
    Mutant(
        f"{AGGREGATE}/leading_measures.py",
        "if row.policy in CONTROLS or measure.interval(row) is None:",
        "if measure.interval(row) is None:",
        "tests/aggregate/test_ranking.py::test_controls_and_a_single_context_are_not_ranked",
    ),
    Mutant(
        f"{AGGREGATE}/outcomes.py",
        'wanted = "worse"\n',
        'wanted = "better"\n',
        "tests/comparisons/test_outcomes.py::test_what_is_worse_at_one_level_and_better_at_another_is_mixed",
    ),
    Mutant(
        f"{AGGREGATE}/outcomes.py",
        "if len(area.levels) > 1",
        "if len(area.levels) > 0",
        "tests/comparisons/test_outcomes.py::test_of_one_ratio_there_is_no_area",
    ),
    Mutant(
        f"{DOWNLOADS}/print_tables.py",
        '{"better": " ▼", "worse": " ▲"',
        '{"better": " ▲", "worse": " ▼"',
        "tests/comparisons/test_outcomes.py::test_a_table_for_a_paper_marks_what_the_comparison_tells",
    ),
    # The store.
    Mutant(
        f"{STORE}/store.py",
        'and set(rows) == {(policy, "ok")}',
        "",
        "tests/store/test_store.py::test_what_failed_is_tried_again",
    ),
    Mutant(
        f"{STORE}/store.py",
        "if identity.differences(store.identity):",
        "if False:",
        "tests/store/test_store.py::test_another_identity_is_refused_and_nothing_is_lost",
    ),
    Mutant(
        f"{STORE}/store.py",
        "~keys.duplicated()",
        '~keys.duplicated(keep="last")',
        "tests/store/test_store.py::test_of_a_row_that_is_there_twice_the_first_is_kept",
    ),
    Mutant(
        f"{STORE}/tables.py",
        "low - NOISE <= end <= high + NOISE",
        "low - NOISE <= end",
        "tests/store/test_store_of_strangers.py::test_a_number_that_no_measure_has_is_refused_in_one_line",
    ),
    Mutant(
        f"{STORE}/merging.py",
        "set(mine.points) <= set(theirs.points)",
        "True",
        "tests/store/test_lending.py::test_a_run_at_other_levels_lends_nothing",
    ),
    Mutant(
        f"{STORE}/merging.py",
        "records[~twice]], ignore_index",
        "records], ignore_index",
        "tests/store/test_merging.py::test_other_policies_levels_and_tasks_of_one_setting_stand_on_one_board",
    ),
    Mutant(
        f"{STORE}/store.py",
        "write_atomically(path, lambda partial: _write(partial, table, options))",
        "_write(path, table, options)",
        "tests/store/test_store.py::test_a_full_disk_is_one_clear_line_and_loses_nothing",
    ),
    Mutant(
        f"{STORE}/merging.py",
        " and other.has(task, chunk, policy, answers)",
        "",
        "tests/store/test_lending.py::test_what_another_run_has_in_part_is_not_lent",
    ),
    # What people read and take away.
    Mutant(
        f"{PAGES}/examples.py",
        "OF_A_CONTEXT = 2",
        "OF_A_CONTEXT = 6",
        "tests/pages/test_examples.py::test_examples_are_about_several_contexts_the_worst_of_each_first",
    ),
    Mutant(
        f"{PAGES}/examples.py",
        'row["right"] is not True',
        'row["right"] is True',
        "tests/pages/test_examples.py::test_the_answers_that_lose_most_against_the_full_cache_come_first",
    ),
    Mutant(
        f"{PAGES}/uses.py",
        "self.sort > self.highest_sure",
        "self.sort < self.highest_sure",
        "tests/pages/test_uses.py::test_what_the_contexts_do_not_show_of_the_oracle_may_be_chance",
    ),
    Mutant(
        f"{DOWNLOADS}/sheets.py",
        "if FORMULA.match(text) else text",
        "if False else text",
        "tests/pages/test_sheets.py::test_a_text_that_would_be_computed_is_text",
    ),
    Mutant(
        f"{DOWNLOADS}/print_tables.py",
        'if escaped.startswith(("[", "*")):',
        "if False:",
        "tests/pages/test_print_tables.py::test_any_name_is_read_as_it_was",
    ),
    Mutant(
        f"{DOWNLOADS}/print_tables.py",
        'if mark == "best":',
        'if mark == "tie":',
        "tests/pages/test_print_tables.py::test_results_stand_by_task_level_and_method_with_the_best_in_bold_and_ties_marked",
    ),
    Mutant(
        f"{DOWNLOADS}/print_tables.py",
        'if mark == "tie":',
        'if mark == "best":',
        "tests/pages/test_print_tables.py::test_results_stand_by_task_level_and_method_with_the_best_in_bold_and_ties_marked",
    ),
    Mutant(
        f"{TERMINAL}/table.py",
        "MOST_COLUMNS = 10",
        "MOST_COLUMNS = 20",
        "tests/pages/test_page.py::test_the_terminal_table_fits_80_columns_and_loses_no_policy",
    ),
    Mutant(
        f"{TERMINAL}/table.py",
        "DIRECTIVES: (OBEYED, LEAKAGE)",
        "DIRECTIVES: (RIGHT, LEAKAGE)",
        "tests/pages/test_page.py::test_the_terminal_judges_directives_by_obedience_and_tells_silence_beside_wrong_answers",
    ),
    Mutant(
        f"{TERMINAL}/verdicts.py",
        "by_other.setdefault(duel.other, [])",
        "by_other.setdefault(duel.policy, [])",
        "tests/comparisons/test_verdict_tables.py::test_cells_are_counted_by_opponent_and_told_one_by_one_to_programs",
    ),
)


def fits(mutant: Mutant, root: Path = ROOT) -> bool:
    """Whether the old text stands in one place of the file, and the killer in its own."""
    tests, name = mutant.killer.split("::")
    return (root / mutant.file).read_text().count(mutant.old) == 1 and f"def {name}(" in (
        root / tests
    ).read_text()


def passes(tree: Path, tests: Sequence[str]) -> tuple[bool, str]:
    """Whether the tests pass in that tree, and the name of the first that does not."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        *tests,
    ]
    # Without compiled files: one of the file before the fault may look like one of the file with
    # it.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return False, "took too long"
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return ended.returncode == 0, lines[0].split(" - ")[0] if lines else ended.stdout[-300:]


def copied(folder: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def killer_of(mutant: Mutant) -> str | None:
    """The test that notices the fault; None if it survives."""
    with tempfile.TemporaryDirectory(prefix="kvbench-mutant-") as folder:
        tree = copied(Path(folder))
        file = tree / mutant.file
        file.write_text(file.read_text().replace(mutant.old, mutant.new))
        passed, first = passes(tree, [mutant.killer])
    return None if passed else first


def main(words: Sequence[str]) -> int:
    chosen = [
        mutant for mutant in MUTANTS if not words or any(word in str(mutant) for word in words)
    ]
    passed, first = passes(ROOT, sorted({mutant.killer for mutant in chosen}))
    if not passed:
        print(f"the tests fail without any mutant: {first}")
        return 2
    survived = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, killer in zip(chosen, pool.map(killer_of, chosen), strict=True):
            survived += killer is None
            print(
                f"{'SURVIVED' if killer is None else 'killed'}  {mutant}\n    "
                f"{killer or mutant.killer}",
                flush=True,
            )
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
