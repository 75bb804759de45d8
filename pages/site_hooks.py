"""What the site changes of the pages: the list of methods, and links that lead out of docs/."""

import re
from typing import Any

from shotfit.methods import list_methods

KNOWN = {
    "../README.md": "index.md",
    "../LOG.md": "log.md",
    "../CHANGELOG.md": "changelog.md",
}
"""Files of the repository that are pages of the site."""


def on_config(config: Any) -> Any:
    """Lists the pages of all methods: the folder of methods is the registry here, too."""
    for section in config["nav"]:
        if "Methods" in section:
            section["Methods"] += [f"methods/{name}.md" for name in list_methods()]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leads to the site's own pages where there is one; a link to a file of the repository that the
    site does not have becomes plain text."""
    return re.sub(r"\[([^\]]+)\]\((\.\./[^)#\s]*)(#[^)]*)?\)", _link, markdown)


def _link(match: re.Match[str]) -> str:
    text, path, mark = match[1], match[2], match[3] or ""
    if path in KNOWN:
        return f"[{text}]({KNOWN[path]}{mark})"
    return text if path.startswith(("../src", "../results", "../CONTRIBUTING")) else match[0]
