"""The page of a study, which is made in the same way for every study."""

from leaderboards.rendering.templating import render
from leaderboards.studies.declaration import Study, StudyContent, StudyInput


def build_study(study: Study, given: StudyInput) -> tuple[str, StudyContent]:
    """Returns the page as text and what it holds; the same input gives the same bytes."""
    content = study.find(given)
    page = render(
        "study.html.j2",
        study=study,
        model=given.model,
        facts=content.facts,
        parts=content.parts,
        sheets=content.sheets,
    )
    return page, content
