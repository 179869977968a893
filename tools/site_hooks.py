"""Hooks that MkDocs calls: they add pages from outside of `docs` to the site, and mend links.

The API reference is made anew at each build. CONTRIBUTING.md, CHANGELOG.md and SECURITY.md become
pages. In all pages, links to files of the repository that are no pages lead to its host.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_TOOLS = Path(__file__).parent
_ROOT = _TOOLS.parent
_HOST = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
#: The files of pages whose text stands outside of `docs`.
OUTSIDE = {
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
_PAGES = {file: page for page, file in OUTSIDE.items()}
_LINK = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the chapters of the API reference into the navigation."""
    sys.path.insert(0, str(_TOOLS))
    sys.path.insert(0, str(_ROOT))
    import api_pages

    chapters = [{title: f"api/{slug}.md"} for slug, title, _ in api_pages.PAGES]
    for section in config.nav or []:
        for title, entries in section.items():
            if title == "Reference":
                section[title] = [*entries, {"Chapters": chapters}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not stand in `docs`."""
    import api_pages

    for name, text in api_pages.pages().items():
        files.append(File.generated(config, f"api/{name}", content=text))
    for page, name in OUTSIDE.items():
        text = (_ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links out of `docs` by links to the repository's host."""
    place = page.file.src_uri
    return relinked(markdown, place, {file.src_uri for file in files})


def relinked(markdown: str, place: str, pages: set[str]) -> str:
    """A page's text with links that lead somewhere on the site.

    Args:
        markdown: the text.
        place: the page's path in `docs`.
        pages: the paths of all files of the site.
    """
    origin = OUTSIDE.get(place, f"docs/{place}")

    def linked(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if ":" in target:
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        page = _PAGES.get(there) or there.removeprefix("docs/")
        if there in _PAGES or (there.startswith("docs/") and page in pages):
            return f"{before}{posixpath.relpath(page, posixpath.dirname(place) or '.')}{after}"
        if (_ROOT / there).exists():
            kind = "tree" if (_ROOT / there).is_dir() else "blob"
            return f"{before}{_HOST}/{kind}/main/{there}{after}"
        return match[0]

    return _LINK.sub(linked, markdown)
