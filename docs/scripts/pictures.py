"""Takes the pictures of the README and of docs from the pages that ``make pictures`` builds, with
headless Chromium."""

import shutil
import subprocess
import tempfile
from pathlib import Path

DOCS = Path(__file__).parents[1]
SITE = Path("site")
PAGES = {  # by picture, the page, and the only section that is shown
    "board": (DOCS / "board/index.html", ""),
    "page": (SITE / "default/index.html", ""),
    "examples": (SITE / "default/examples-base.html", ""),
    "comparison": (SITE / "compare/compare-LoudValuesPress.html", ""),
    "instructions": (SITE / "instructions/instructions.html", "plane"),
}


def screenshot(page: Path, path: Path, part: str) -> None:
    """Takes a picture of the top of a page, or of one of its sections."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        visible = page
        if part:  # a screenshot begins at the top, whatever an address says
            visible = Path(profile) / page.name
            style = f"<style>header, section:not(#{part}) {{ display: none }}</style></head>"
            visible.write_text(
                page.read_text(encoding="utf-8").replace("</head>", style, 1), encoding="utf-8"
            )
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
        ]
        places = [
            "--window-size=1280,1500",
            f"--user-data-dir={profile}",
            f"--screenshot={path.resolve()}",
        ]
        command = [browser, *flags, *places, visible.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    for name, (page, part) in PAGES.items():
        screenshot(page, DOCS / f"{name}.png", part)
