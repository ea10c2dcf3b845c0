"""Each page has the style sheets of all classes that its templates use: those of one kind of page
are no part of others."""

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from jinja2 import Environment, meta

TEMPLATES = files("leaderboards.rendering").joinpath("templates")
NAMES = sorted(file.name for file in TEMPLATES.iterdir())
COMMON = "page.css"
SHEETS = [name for name in NAMES if name.endswith(".css")]
PAGES = [
    name
    for name in NAMES
    if name.endswith(".j2") and 'extends "base' in TEMPLATES.joinpath(name).read_text()
]
CLASS = re.compile(r"\.([a-z][\w-]*)(?=[^{}]*\{)")


def text_of(name: str) -> str:
    return TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def behind(name: str) -> Iterator[str]:
    """Names a template and all that it takes from, style sheets among them."""
    yield name
    if name.endswith(".j2"):
        for other in meta.find_referenced_templates(Environment().parse(text_of(name))):
            if other is not None:
                yield from behind(other)


def classes_of(sheet: str) -> set[str]:
    """Names the classes that a sheet declares."""
    return {*CLASS.findall(text_of(sheet))}


def classes_used(template: str) -> set[str]:
    attributes = re.findall(r'class="([^"{]*)', text_of(template))
    return {word for attribute in attributes for word in attribute.split()}


def test_there_are_style_sheets_of_some_pages_alone() -> None:
    assert COMMON in SHEETS
    assert len(SHEETS) > 4
    assert "example" in classes_of("examples.css")
    assert "examples.css" in [*behind("task.html.j2")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_sheets_of_the_classes_that_it_uses(page: str) -> None:
    sources = [*dict.fromkeys(behind(page))]
    used = {name for source in sources if source.endswith(".j2") for name in classes_used(source)}
    had = {COMMON, *sources}
    styled = {name for sheet in SHEETS if sheet in had for name in classes_of(sheet)}
    for sheet in SHEETS:
        if sheet not in had:
            missing = (used & classes_of(sheet)) - styled
            assert not missing, f"{page} needs {sheet}"
