"""A chat template is told one day of a run, whenever and by whom it is run."""

import shutil
from pathlib import Path

import pytest

from kvbench.models.chat_date import date_told
from kvbench.models.load import load_model, load_tokenizer
from kvbench.prompts.prompt import chat_template

DAY, OTHER_DAY = "2026-11-28", "2026-12-05"  # a Saturday each


def with_template(toy_folder: Path, tmp_path: Path, before: str) -> str:
    folder = Path(shutil.copytree(toy_folder, tmp_path / "model"))
    template = folder / "chat_template.jinja"
    template.write_text(before + template.read_text())
    return str(folder)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{{ strftime_now('%d %b %Y') }} ", "28 Nov 2026 "),
        ("{{ strftime_now('%H:%M:%S') }} {{ strftime_now('%Y') }}", "00:00:00 2026"),
        (
            "{% if not date_string is defined %}{% set date_string = strftime_now('%d %B') %}{% "
            "endif %}{{ date_string }}",
            "28 November",
        ),
    ],
)
def test_the_day_of_a_run_stands_in_its_prompts(
    toy_folder: Path, tmp_path: Path, written: str, told: str
) -> None:
    name = with_template(toy_folder, tmp_path, written)
    model, again = load_model(name, "cpu", date=DAY), load_tokenizer(name, DAY)
    assert model.date == DAY
    assert chat_template(model.tokenizer).head.startswith(told)
    assert chat_template(again) == chat_template(model.tokenizer)
    of_kvpress = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], tokenize=False
    )
    assert str(of_kvpress).startswith(told), (
        "its own pipeline runs the template without a word of the day"
    )


@pytest.mark.parametrize(
    "written",
    ["", "{% if false %}{{ strftime_now('%d') }}{% endif %}", "{{ strftime_now('%H:%M') }}"],
)
def test_a_template_that_tells_no_day_makes_no_other_run_tomorrow(
    toy_folder: Path, tmp_path: Path, written: str
) -> None:
    tokenizer = load_tokenizer(with_template(toy_folder, tmp_path, written))
    assert date_told(tokenizer, DAY) == date_told(tokenizer, OTHER_DAY) == ""


def test_a_base_model_is_told_no_day(toy_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(toy_folder, tmp_path / "model"))
    (folder / "chat_template.jinja").unlink()
    assert load_model(str(folder), "cpu", date=DAY).date == ""
