"""Headers in one translation unit: a guard excludes the second inclusion of its header, and no other one."""

from __future__ import annotations

import shutil

import processes
import pytest

import numba_ptxlink as pl


def export(folder, name, symbol, signature="float32(float32)", doc=""):
    """Write the header *name* of one function."""

    def function(x):
        return x

    function.__doc__ = doc
    return pl.export(pl.udf(signature, name=symbol)(function), folder, name=name, emit="ptx").header


def compile_together(headers, body=""):
    """Compile a source that includes *headers*, in order."""
    source = "".join(f'#include "{path}"\n' for path in headers)
    return pl.link(f'{source}extern "C" __global__ void k() {{}}\n{body}', arch="sm_90", checks="none").cubin


@pytest.mark.parametrize("stem", ["udfs", "my-udfs", "MY.UDFS", "3 spaces here", "größe"])
def test_two_headers_of_any_stem_are_both_read(tmp_path, stem):
    """Two headers of one name in two folders declare the functions of both, whatever the name."""
    headers = [export(tmp_path / name, stem, name) for name in ("first", "second")]
    assert compile_together(headers, 'static_assert(sizeof(first(second(1.0f))) == 4, "");')


def test_one_function_in_two_headers_is_one_function(tmp_path):
    """Two exports may declare the same function; two that disagree are refused."""
    first, second, other = (
        export(tmp_path, name, "shared", signature)
        for name, signature in (
            ("first", "float32(float32)"),
            ("second", "float32(float32)"),
            ("other", "float64(float64)"),
        )
    )
    assert compile_together([first, second])
    with pytest.raises(pl.LinkError, match="shared"):
        compile_together([first, other])


def test_host_compilers_warn_of_nothing_in_a_docstring(tmp_path):
    """Neither of ends of comments, of a trigraph at the end of a line nor of the direction of text."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    doc = "right to left \u202e\nends in a backslash??/\n*??/\n/ and \\\n*/ nested /*"
    header = export(tmp_path, "udfs", "f", doc=doc)
    warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["g++", "-std=c++14", "-x", "c++", "-fsyntax-only", *warnings, str(header)]
    processes.run(*command, quiet=True)
