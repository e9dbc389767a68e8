"""The documentation: each block of code on a page is run, and its tables have all there is."""

from __future__ import annotations

import ast
import re
import runpy

import doc_blocks
import pytest
from cuda_toolkit import lay_out
from doc_blocks import DOCS, LANGUAGES, LOOSE, ROOT

import numba_ptxlink.errors

PAGES = doc_blocks.pages()
REFERENCE = DOCS / "reference"
TABLES = runpy.run_path(str(DOCS / "tables.py"))


def name_of(page):
    """Return the name of a page."""
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """Return an environment with a toolkit and a cache, which the pages share."""
    folder = tmp_path_factory.mktemp("docs")
    return doc_blocks.environment(lay_out(folder), folder / "cache")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_blocks_of_a_page_run(page, environ, tmp_path):
    """All blocks of a page have the results that it shows, in order, in one folder."""
    runner = doc_blocks.Runner(tmp_path, environ)
    for block in doc_blocks.blocks(page):
        try:
            runner.run(block)
        except (AssertionError, SyntaxError) as error:
            pytest.fail(f"{name_of(page)}, line {block.line}:\n{block.text}\n{error}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_left_out(page):
    """Each block has a language that is run, written or compared; any other is an excerpt of a file."""
    for block in doc_blocks.blocks(page):
        assert block.language in LANGUAGES, f"{name_of(page)}, line {block.line}"
        if "excerpt" in block.marks:
            doc_blocks.check_excerpt(block)
        else:
            assert block.language in LOOSE or block.file, f"{name_of(page)}, line {block.line}"


def first_cells(table):
    """Return the code in the first cells of a table."""
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def test_the_table_has_each_environment_variable():
    """The page of variables has those that the code reads, and no others of this package."""
    source = (ROOT / "numba_ptxlink" / "_config.py").read_text()
    read = set(re.findall(r'"(NUMBA_PTXLINK\w*)"', source))
    by_hand = {"NUMBA_PTXLINK_CPU_PYTHON", "NUMBA_PTXLINK_CPU_LIBPYTHON"}
    assert sorted(read - by_hand) == sorted(first_cells(TABLES["environment"]()))
    assert [] == [name for name in by_hand if name not in (REFERENCE / "environment.md").read_text()]


def test_the_catalogue_has_each_exception():
    """The page of errors has a row for each exception that this package raises on purpose."""
    assert sorted(numba_ptxlink.errors.__all__) == sorted(first_cells(TABLES["errors"]()))


def test_each_public_name_is_described():
    """The page about Python has each name that the package offers."""
    text = (REFERENCE / "python.md").read_text()
    described = re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)
    assert sorted(numba_ptxlink.__all__) == sorted(described)


def test_each_page_is_in_a_table_of_contents():
    """A page that no table of contents lists cannot be reached from the home page."""
    reachable = {DOCS / "index.md"}
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            reachable |= {(page.parent / f"{name}.md").resolve() for name in names}
    assert [] == [name_of(page) for page in sorted(DOCS.rglob("*.md")) if page not in reachable]


def test_the_address_of_a_page_that_is_gone_leads_to_its_successor():
    """A redirect is from a page that does not exist, to a page that does."""
    for old, new in runpy.run_path(str(DOCS / "redirects.py"))["REDIRECTS"].items():
        assert not (DOCS / f"{old}.md").exists(), old
        assert (DOCS / f"{new.partition('#')[0]}.md").exists(), new


def test_each_known_fault_has_evidence():
    """A fault of another tool has all cells of its row, and a test here or an issue of the tool."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    for fault in tomllib.loads((DOCS / "known.toml").read_text())["fault"]:
        assert {"page", "tool", "releases", "symptom", "response"} <= set(fault), fault
        assert (REFERENCE / f"{fault['page']}.md").exists(), fault
        assert fault.get("test") or re.fullmatch(r"https://github\.com/.+/issues/\d+", fault["issue"]), fault
        if "test" in fault:
            path, _, name = fault["test"].partition("::")
            functions = ast.walk(ast.parse((ROOT / path).read_text()))
            assert name in {node.name for node in functions if isinstance(node, ast.FunctionDef)}, fault
