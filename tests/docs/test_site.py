"""The documentation's site: it is built without a warning, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from page_programs import DOCS

# Each push builds the site by itself, too (.github/workflows/docs.yml).
pytestmark = pytest.mark.slow

ROOT = DOCS.parent
#: What makes a browser load a file, by element; a link is loaded unless it only says what is what.
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
SAYING = {"canonical", "next", "prev"}


class _Loaded(HTMLParser):
    """The addresses of what a page loads."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        if tag in LOADING and known.get(LOADING[tag]) and known.get("rel") not in SAYING:
            self.found.append(known[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site's folder; it is built with warnings as errors."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed")
    pytest.importorskip("material", reason="MkDocs' theme is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        parser = _Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.found
        assert not [url for url in parser.found if "//" in url], page
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"url\([\"']?(https?:)?//|@import", text), sheet


def test_the_site_can_be_searched_in_light_and_in_dark(site):
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "ag.nn.Linear" in index
    page = (site / "index.html").read_text(encoding="utf-8")
    assert 'data-md-color-scheme="default"' in page
    assert 'data-md-color-scheme="slate"' in page


def test_links_out_of_the_pages_lead_to_files_of_the_repository(site):
    """Those on the repository's host; the others are checked while the site is built."""
    checked = 0
    for page in site.rglob("*.html"):
        for path in re.findall(
            r'href="https://github.com/asyncgrad/asyncgrad/(?:tree|blob)/main/([^"#]+)',
            page.read_text(encoding="utf-8"),
        ):
            assert (ROOT / path).exists(), (page, path)
            checked += 1
    assert checked > 10
