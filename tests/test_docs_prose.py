"""The prose of the documentation: short pages of short sentences, without vague clauses."""

from __future__ import annotations

import prose
import pytest
from doc_blocks import ROOT

# The most words that each page may have. A page that is not listed was not written by these rules yet.
BUDGETS = {
    "CONTRIBUTING.md": 600,
    "MIGRATION.md": 300,
    "README.md": 400,
    "RELEASING.md": 220,
    "SECURITY.md": 160,
    "docs/explanation/design.md": 1850,
    "docs/gallery.md": 110,
    "docs/how-to/cmake.md": 500,
    "docs/how-to/cpu.md": 550,
    "docs/how-to/debug.md": 500,
    "docs/how-to/cxx_programs.md": 500,
    "docs/how-to/deploy.md": 650,
    "docs/how-to/host.md": 400,
    "docs/how-to/launch.md": 650,
    "docs/how-to/link.md": 550,
    "docs/how-to/older.md": 450,
    "docs/how-to/package.md": 250,
    "docs/how-to/programs.md": 600,
    "docs/how-to/replace.md": 350,
    "docs/how-to/speed.md": 450,
    "docs/how-to/structs.md": 700,
    "docs/how-to/troubleshooting.md": 700,
    "docs/index.md": 160,
    "docs/licence.md": 250,
    "docs/reference/cache.md": 800,
    "docs/reference/compilers.md": 300,
    "docs/reference/environment.md": 160,
    "docs/reference/errors.md": 120,
    "docs/reference/export.md": 900,
    "docs/reference/front_ends.md": 270,
    "docs/reference/limits.md": 600,
    "docs/reference/types.md": 1500,
    "docs/reference/suites.md": 150,
    "docs/reference/versions.md": 550,
    "docs/start/cpp.md": 500,
    "docs/start/index.md": 450,
    "docs/start/numba.md": 500,
}
SEMICOLONS_PER_1000_WORDS = 2

pages = pytest.mark.parametrize("page", BUDGETS)


@pages
def test_a_page_has_few_words(page):
    """A page has no more words than its budget."""
    assert prose.measure_page(ROOT / page).words <= BUDGETS[page]


@pages
def test_sentences_are_short_and_plain(page):
    """A page has no sentence over 35 words, no "what" in place of a noun, and few semicolons."""
    measured = prose.measure_page(ROOT / page)
    assert [] == measured.long
    assert [] == measured.vague
    assert measured.semicolons <= SEMICOLONS_PER_1000_WORDS * measured.words / 1000


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs" / "reference").glob("*.md")))
def test_each_page_of_the_reference_has_a_budget(page):
    """Only pages that are generated from the package have no budget."""
    is_generated = page in ("cli.md", "python.md", "replaced.md")
    assert is_generated is (f"docs/reference/{page}" not in BUDGETS)


def test_each_budget_is_of_a_page():
    """A page that was deleted has no budget."""
    assert [] == [page for page in BUDGETS if not (ROOT / page).exists()]


def test_the_measures_of_a_text():
    """Code, comments and targets of links do not count as prose; cells and list items are sentences."""
    text = (
        "<!-- a; b -->\n<!-- x -->\na; b\n<!-- /x -->\n# A page\n\nRun `a; b` [here](what.md); see.\n\n"
        "```bash\nx; y\n```\n\n| one | two |\n"
    )
    assert (8, 1, [], []) == prose.measure(text)
    assert ["Take what is there"] == prose.measure("Take what is there").vague
    assert [" ".join(["word"] * 36)] == prose.measure(" ".join(["word"] * 36)).long
    assert [] == prose.measure("- " + "word " * 30 + "\n- " + "word " * 30).long
    assert [] == prose.measure("Say what to do.").vague
