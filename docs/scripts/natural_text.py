"""Makes a long natural text of Django's documentation, for claims that take more next tokens than
``prose(data=python)`` has: ``python -m docs.scripts.natural_text Django-5.2.tar.gz text.jsonl``.

Each page of the documentation becomes a row with its paragraphs. Code, headings and lists are left
out, and of markup the text that a reader sees stays."""

import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

# :doc:`the text </the/page>`, and :doc:`/the/page`, as reStructuredText writes references.
TITLED_REFERENCE = re.compile(r":[\w:-]+:`([^`<]+?)\s*<[^`>]*>`")
REFERENCE = re.compile(r":[\w:-]+:`~?([^`]+)`")
LITERAL = re.compile(r"``([^`]+)``")


def list_pages(source: Path) -> Iterator[str]:
    """Lists the pages of documentation in a source distribution, without notes on releases."""
    with tarfile.open(source) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            folders = Path(member.name).parts[1:-1]
            is_page = folders[:1] == ("docs",) and not {"releases", "_theme"} & set(folders)
            file = archive.extractfile(member)
            if is_page and file is not None and member.name.endswith(".txt"):
                yield file.read().decode("utf-8")


def take_paragraphs(page: str) -> str:
    """Returns the paragraphs of a page, which begin with a letter and end with a full stop."""
    paragraphs = []
    for part in page.split("\n\n"):
        text = part.strip("\n")
        if text[:1].isalpha() and text.endswith("."):
            paragraphs.append(text)
    text = "\n\n".join(paragraphs)
    for markup in (TITLED_REFERENCE, REFERENCE, LITERAL):
        text = markup.sub(r"\1", text)
    return text


def main() -> None:
    """Writes the text of the source distribution that is named first to the file named second."""
    source, target = map(Path, sys.argv[1:])
    with target.open("w", encoding="utf-8") as rows:
        for page in list_pages(source):
            if text := take_paragraphs(page):
                rows.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    main()
