"""What is observed of answers is stored beside them, of a sample of contexts, and what is not
observed is counted."""

from pathlib import Path

import numpy as np
import pytest

from kvbench.cli.program import main
from kvbench.models.load import LoadedModel
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.studies.routing.attention import ATTENTION, ROUTES, STATES
from leaderboards.routing.reach import EPSILON
from policies import POLICIES
from tests.support.models.runs import ToyRuns

OBSERVABLE = ("full", "knorm", "adakv_snapkv")
PRIVATE = next(
    policy.name
    for policy in POLICIES.values()
    if policy.prefill == "private" and policy.takes_ratios
)
UNOBSERVED = {
    "merging_snapkv": "it merges or rewrites rows",
    "decoding_knorm": "it goes on cutting while an answer is written",
    PRIVATE: "it has a prefill of its own",
}
TABLES = ("attention", "states", "routes")


@pytest.fixture(scope="module")
def observed_store(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    runs = ToyRuns(llama, tmp_path_factory.mktemp("observed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvbench.studies.routing.attention.SAMPLE", 1)
        return runs("run", (*OBSERVABLE, *UNOBSERVED), (0.5,), contexts=2, tables=TABLES)


def test_every_answer_of_the_sample_has_a_route_or_the_reason_why_not(
    observed_store: Store,
) -> None:
    records = observed_store.frame()
    sampled = records[records["example_index"] == 0]
    routes = observed_store.study_table(ROUTES).to_pandas()
    key = list(RECORDS.key)
    both = sampled.merge(routes, on=key, validate="one_to_one")
    assert len(both) == len(sampled) == len(routes) < len(records)
    for policy, of_policy in both.groupby("policy"):
        assert set(of_policy["unobserved"]) == {UNOBSERVED.get(str(policy))}
    unobserved = both[both["unobserved"].notna()]
    assert (
        unobserved[["answer_alive", "answer_width", "said_width", "chance"]].isna().all(axis=None)
    )
    observed = both[both["unobserved"].isna()]
    answerable = observed[observed["answerable"]]
    assert answerable["answer_width"].between(0, 1).all()
    assert (answerable["evidence_width"] >= answerable["answer_width"]).all()
    assert (
        (answerable["answer_width"] == 0) | (answerable["answer_width"] >= np.float32(EPSILON))
    ).all()
    assert answerable[answerable["policy"] == "full"]["answer_alive"].all()
    assert (observed["answer_alive"].notna() == observed["answerable"]).all()
    assert (answerable["evidence_alive"].astype(bool) == (answerable["slot_coverage"] > 0)).all()
    for chance in observed["chance"]:
        assert (np.diff(chance) <= 0).all()
    confused = observed["hallucination_kind"] == "confused"
    assert (observed["said_width"].notna() | ~confused).all()


def test_attention_is_stored_by_answer_step_and_layer(observed_store: Store) -> None:
    rows = observed_store.study_table(ATTENTION).to_pandas()
    assert set(rows["policy"]) == {*OBSERVABLE}
    of_question = rows[rows["step"] == 0]
    answers = observed_store.frame()
    sampled = answers[(answers["example_index"] == 0) & answers["policy"].isin(OBSERVABLE)]
    assert len(of_question) == len(sampled) * rows["layer"].nunique()
    for row in rows.itertuples():
        assert (np.array(row.top_weight) <= np.array(row.answer) + 1e-6)[row.retrieves].all()
        assert (np.array(row.answer) <= np.array(row.fact) + 1e-6).all()
    by_policy = rows.groupby("policy")[["kept", "jaccard", "kappa"]]
    assert by_policy.mean()["kept"]["full"] == 1
    assert by_policy.mean()["jaccard"]["full"] == 1
    assert rows[rows["policy"] == "full"]["kappa"].isna().all()
    assert by_policy.mean()["kept"]["knorm"] == pytest.approx(0.5, abs=0.02)


def test_states_are_stored_before_and_behind_each_layer(observed_store: Store) -> None:
    rows = observed_store.study_table(STATES).to_pandas()
    layers = rows["layer"].max()
    by_layer = rows.groupby("layer")
    assert by_layer.size().nunique() == 1
    assert rows["values"].isna().eq(rows["layer"] == layers).all()
    states = {len(np.frombuffer(state, dtype="<f2")) for state in rows["state"]}
    assert len(states) == 1
    embedded = rows[rows["layer"] == 0]
    # No cache is read before the first layer.
    assert embedded.groupby("question_id")["state"].nunique().max() == 1
    last = rows[rows["layer"] == layers]
    assert last.groupby("question_id")["state"].nunique().min() > 1


def test_a_site_gives_out_routes_and_attention_and_no_raw_numbers(
    observed_store: Store, tmp_path: Path
) -> None:
    assert main(["site", str(observed_store.folder), "--site", str(tmp_path / "site")]) == 0
    given = {path.stem for path in (tmp_path / "site/data").glob("*.parquet")}
    assert given >= {"attention", "routes"}
    assert given.isdisjoint({"states"})
    assert (tmp_path / "site/routing.html").is_file()
