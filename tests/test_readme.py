"""What the README and CONTRIBUTING link to is there; their code runs in tests of its own."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
