"""Where symbols come from, what reading them costs, and how much of it a link asks for."""

from __future__ import annotations

import pytest
from linkcases import CALLEE, CALLER, KERNEL, archive, cubin, function, ltoir, object_of
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._config import Config
from numba_ptxlink._formats import containers
from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink._formats.symbol import Symbol
from numba_ptxlink._link import checks as link_checks
from numba_ptxlink._link import engine, explain, symbol_tables
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._link import symbols as link_symbols
from numba_ptxlink._tools import nvfatbin, nvjitlink, nvrtc
from numba_ptxlink.cli import main
from numba_ptxlink.linker import PtxLinker

ARCH = pl.Arch.of("sm_80")
WRONG = 'extern "C" __device__ int f(double a) { return 1; }\n'
BODY = """\
extern "C" __device__ float g{number}(float a, int n) {{
  float r = a;
  for (int i = 0; i < n; ++i) r = r * a + sinf(r + {number}) - expf(-a * {number});
  return r;
}}
"""
MANY = "".join(BODY.format(number=number) for number in range(60))


@pytest.fixture(scope="module")
def large() -> dict[str, bytes]:
    """Return libraries of many functions as LTO-IR: one right, one whose f has another prototype."""
    return {"right": ltoir(MANY + CALLEE.format(value=1)), "wrong": ltoir(MANY + WRONG)}


@pytest.fixture
def compiled(monkeypatch):
    """Return a list that fills with what is compiled for its symbols; what is remembered is forgotten."""
    original, asked = nvjitlink.link, []

    def link(inputs, flags, **options):
        if "-r" in flags:
            asked.append([name for _, name, _ in inputs])
        return original(inputs, flags, **options)

    monkeypatch.setattr(nvjitlink, "link", link)
    monkeypatch.setattr(link_symbols, "_known", type(link_symbols._known)())
    return asked


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Give the default cache a directory of its own, and return it."""
    settings = Config(cache_dirs=(str(tmp_path / "cache"),))
    found = cache.Cache(settings)
    for home in (cache, cache.tiered):
        monkeypatch.setattr(home, "default", lambda: found)
    monkeypatch.setattr(link_symbols, "config", lambda: settings)
    return found


def own(code: bytes, name: str, kind: str = "ltoir") -> link_inputs.Input:
    """Return *code* as an input."""
    return link_inputs.Input(kind, name, code)


@pytest.mark.parametrize("kind", ["ptx", "cubin", "ltoir", "fatbin"])
def test_symbols_of_every_kind(kind):
    """Definitions and references with their prototypes are read out of every kind of input."""
    from numba_ptxlink._tools import nvfatbin

    source = (
        'extern "C" __device__ int outside(float, long long);\n'
        "struct Pair { double a, b; };\n"
        'extern "C" __device__ float inside(Pair p, short s) { return p.a + s + outside(p.b, s); }\n'
        'extern "C" __global__ void k(float* p) { *p = inside({1, 2}, 3); }\n'
    )
    from numba_ptxlink._tools import nvrtc

    output = "cubin" if kind == "fatbin" else kind
    code = nvrtc.compile_source(source, "source.cu", ARCH, output=output).code
    if kind == "fatbin":
        code = nvfatbin.pack([("cubin", ARCH, "source", code)])
    symbols = {each.name: each for each in link_symbols.table(link_inputs.read(code), ARCH).symbols}
    assert {"k", "inside", "outside"} == set(symbols)
    assert ("entry", True) == (symbols["k"].kind, symbols["k"].defined)
    assert (True, False) == (symbols["inside"].defined, symbols["outside"].defined)
    inside, outside = symbols["inside"].prototype, symbols["outside"].prototype
    assert (32, 2, 16) == (inside.result.bits, len(inside.params), inside.params[0].size)
    assert [32, 64] == [param.bits for param in outside.params]


@pytest.mark.slow
def test_symbols_of_objects_and_libraries(tmp_path):
    """Host objects with device code, and the members of a static library, are read together."""
    codes = []
    for name in ("f", "g"):
        source = f'extern "C" __device__ int {name}(int a) {{ return a; }}\n'
        codes.append(object_of(source, tmp_path))
        assert [name] == [each.name for each in link_symbols.table(link_inputs.read(codes[-1]), ARCH).symbols]
    library = link_inputs.read(archive(*codes))
    assert {"f", "g"} == {each.name for each in link_symbols.table(library, ARCH).symbols}


def test_what_cannot_be_read_is_left_to_the_linker():
    """A fat binary without code for the architecture has no readable symbols, and nvJitLink says why."""
    from numba_ptxlink._tools import nvfatbin

    packed = nvfatbin.pack([("cubin", pl.Arch.of("sm_90"), "f", cubin(function(), "sm_90"))])
    assert link_symbols.table(link_inputs.read(packed), ARCH).symbols is None
    with pytest.raises(pl.LinkError, match="nvJitLink failed to read the fatbin"):
        pl.link(KERNEL, packed, arch="sm_80")


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("#v", ".func f()"),
        ("#vi", ".func f(.b32)"),
        ("#fdl", ".func (.f32) f(.f64, .b64)"),
        ("#b24b8h", ".func (.b8[24]) f(.b8[8], .b16)"),
        ("#ill|12p4", ".func (.b32) f(.b64, .b64)"),
    ],
)
def test_the_compilers_notes_on_prototypes(signature, expected):
    """The note that ptxas leaves about a prototype is read back."""
    assert expected == str(link_symbols.prototype("f", signature))


def test_ptx_tells_what_others_see():
    """Of a name that is declared and defined the definition counts, and what is static is not told."""
    text = function().replace(".visible .func", ".weak .func")
    declared = text.partition("{")[0].replace(".weak", ".extern").splitlines()[-1] + ";\n"
    static = "".join(function(name="own", linkage="").splitlines(keepends=True)[3:])
    variables = ".visible .global .u32 v = 1;\n.extern .shared .b8 lines[];\n"
    ptx = "".join((*text.splitlines(keepends=True)[:3], declared, static, variables))
    ptx += "".join(text.splitlines(keepends=True)[3:])
    found = {each.name: each for each in link_symbols.table(link_inputs.read(ptx), ARCH).symbols}
    assert {"f": (True, True), "v": (True, False), "lines": (False, False)} == {
        name: (each.defined, each.weak) for name, each in found.items()
    }
    assert ptx.splitlines().index(text.splitlines()[3]) + 1 == found["f"].line


def test_a_large_library_is_not_compiled_for_its_symbols(large, compiled):
    """The first link of a large LTO-IR library compiles nothing besides, unless all checks are asked for."""
    assert len(large["right"]) > link_checks.SMALL
    for checks, expected in (("none", []), ("cheap", []), ("all", [["a.ltoir"], ["k.ltoir"]])):
        pl.link(own(ltoir(CALLER), "k.ltoir"), own(large["right"], "a.ltoir"), arch=ARCH, checks=checks)
        assert expected == sorted(compiled)


def test_all_checks_read_a_large_library(large, compiled):
    """A prototype that differs in a large LTO-IR library is found where all checks are asked for."""
    inputs = (own(ltoir(CALLER), "k.ltoir"), own(large["wrong"], "a.ltoir"))
    assert pl.link(*inputs, arch=ARCH).cubin
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(*inputs, arch=ARCH, checks="all")
    assert {"a.ltoir"} <= {name for names in compiled for name in names}


def test_small_libraries_are_compared_by_default(compiled):
    """A prototype that differs in small LTO-IR is found by default, and without checks it is not."""
    inputs = (own(ltoir(CALLER), "k.ltoir"), own(ltoir(WRONG), "a.ltoir"))
    assert pl.link(*inputs, arch=ARCH, checks="none").cubin
    assert [] == compiled
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(*inputs, arch=ARCH)


def packed(source: str, *kinds: str) -> bytes:
    """Return CUDA C++ as a fat binary, compressed as its tool does."""
    codes = [(kind, nvrtc.compile_source(source, "s.cu", ARCH, output=kind).code) for kind in kinds]
    return nvfatbin.pack([(kind, ARCH, "f", code) for kind, code in codes])


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("cubin", "ptx"), ("ptx",), ("cubin",), ("ptx", "ltoir")])
def test_fat_binaries_are_read_by_themselves(kinds, compiled):
    """A large fat binary is compared with the others, and nothing is compiled for that."""
    lto = "ltoir" in kinds
    caller = own(ltoir(CALLER), "k.ltoir") if lto else KERNEL
    assert pl.link(caller, packed(MANY + CALLEE.format(value=1), *kinds), arch=ARCH).cubin
    expected = [["k.ltoir"]] if lto else []
    assert expected == compiled
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(caller, packed(MANY + WRONG, *kinds), arch=ARCH)
    assert expected == compiled


def test_ltoir_beside_code_for_another_architecture_is_not_read(compiled):
    """Code for another architecture does not tell the symbols of LTO-IR: a source may ask which it is."""
    ninety = pl.Arch.of("sm_90")
    entries = [("ltoir", ninety, "f", ltoir(WRONG, "sm_90")), ("ptx", ARCH, "f", function().encode())]
    source = own(nvfatbin.pack(entries), "f.fatbin", "fatbin")
    assert link_symbols.table(source, ninety, lto=True, deep=False).symbols is None
    assert ["f"] == [each.name for each in link_symbols.table(source, ninety, deep=False).symbols]
    assert [] == compiled


def test_images_of_an_unknown_form_tell_nothing(monkeypatch):
    """A cubin of a newer tool, by itself, in a fat binary or out of a compilation, is no error."""
    code = bytearray(cubin(function()))
    code[8] = 99  # the version of the ABI
    source = own(bytes(code), "f.cubin", "cubin")
    assert link_symbols.table(source, ARCH).symbols is None
    monkeypatch.setattr(containers.FatbinEntry, "content", lambda _: bytes(code))
    source = own(packed(CALLEE.format(value=1), "cubin"), "f", "fatbin")
    assert link_symbols.table(source, ARCH, deep=False).symbols is None
    monkeypatch.setattr(link_symbols, "unpack", lambda *_: bytes(code))
    assert link_symbols.table(own(ltoir(CALLEE.format(value=7)), "f.ltoir"), ARCH).symbols is None


@pytest.mark.slow
def test_objects_and_libraries_are_read_by_themselves(tmp_path, compiled):
    """Host objects and static libraries are compared with the others, and nothing is compiled for that."""
    right, wrong = (object_of(source, tmp_path) for source in (CALLEE.format(value=1), WRONG))
    for code in (right, archive(right)):
        assert pl.link(KERNEL, code, arch=ARCH).cubin
    for code in (wrong, archive(wrong)):
        with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
            pl.link(KERNEL, code, arch=ARCH)
    assert [] == compiled


@pytest.mark.slow
def test_members_that_nothing_asks_for_are_compared(tmp_path):
    """What nothing asks a library for is compared too: nvJitLink links it, and complains to stderr."""
    library = archive(object_of(WRONG, tmp_path))
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(KERNEL, function(), library, arch=ARCH)


def test_a_function_that_its_input_keeps_to_itself_is_told():
    """A PTX function without a linkage is there, and no other input sees it."""
    hidden = function(linkage="")
    with pytest.raises(pl.LinkError, match=r"f is asked for by .* and defined in .*Make it \.visible there"):
        pl.link(KERNEL, hidden, arch=ARCH)


def test_a_failed_link_is_explained_by_a_compilation(large, compiled):
    """A large library is compiled for its symbols once the link has failed, and the hint names them."""
    caller = own(ltoir(CALLER.replace(" f(", " ff(")), "k.ltoir")
    with pytest.raises(pl.LinkError, match="ff is asked for and defined in no input"):
        pl.link(caller, own(large["right"], "a.ltoir"), arch=ARCH, checks="none")
    assert [] == compiled
    with pytest.raises(pl.LinkError, match=r"ff is asked for by k\.ltoir .*there is f in a\.ltoir"):
        pl.link(caller, own(large["right"], "a.ltoir"), arch=ARCH)
    assert ["a.ltoir"] in compiled


def test_two_definitions_are_told_after_the_link_has_failed(large):
    """Where nvJitLink refuses two definitions in large libraries, the message names both."""
    other = ltoir("// the same again\n" + MANY.replace("g", "h") + CALLEE.format(value=2))
    inputs = (own(ltoir(CALLER), "k.ltoir"), own(large["right"], "a.ltoir"), own(other, "b.ltoir"))
    with pytest.raises(pl.LinkError, match=r"f is defined 2 times, .*a\.ltoir, b\.ltoir"):
        pl.link(*inputs, arch=ARCH)


@pytest.mark.slow
def test_without_the_device_runtime_nothing_is_compiled(large, compiled):
    """A link that is tried again with the device runtime is not explained first."""
    from numba import cuda

    @pl.kernel("void(int32[::1])", name="grid_kernel")
    def kernel(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    linked = pl.link(kernel, own(large["right"], "a.ltoir"), arch=ARCH)
    assert ("libcudadevrt.a", []) == (linked.inputs[-1], compiled)


def test_no_checks_leave_only_what_the_linker_cannot_take():
    """Without checks nothing is compared; what spoils or crashes nvJitLink is still refused."""
    # nvJitLink crashes on the second of such links in a process.
    wrong = [link_inputs.read(text) for text in (KERNEL, function(1), function(1), function(param=".b64 a"))]
    found = link_checks.check(wrong, ARCH, (13, 5), "nvidia-nvjitlink", checks="none")
    assert (tuple(wrong), ()) == (found.inputs, found.merged)
    with pytest.raises(pl.LinkError, match="is not a whole ELF image"):
        pl.link(KERNEL, cubin(function())[:400], arch=ARCH, checks="none")
    with pytest.raises(pl.LinkError, match="holds machine code for sm_90"):
        pl.link(KERNEL, cubin(function(), "sm_90"), arch=ARCH, checks="none")
    with pytest.raises(pl.LinkError, match=r"is PTX 9\.99"):
        pl.link(KERNEL, function().replace(".version 8.0", ".version 9.99"), arch=ARCH, checks="none")


def test_a_link_without_checks_does_not_answer_for_one_with_them(kept):
    """What was linked without checks is not served to a link that asks for them."""
    inputs = (ltoir(CALLER), ltoir(WRONG))
    assert pl.link(*inputs, arch=ARCH, checks="none").cubin
    assert 1 == kinds(kept)["link"]
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(*inputs, arch=ARCH)


def kinds(found: cache.Cache) -> dict[str, int]:
    """Return how many entries of each kind a cache has."""
    every = [each.kind for each in found.entries()]
    return {kind: every.count(kind) for kind in sorted(set(every))}


def test_checks_that_make_no_difference_share_an_entry(kept, large):
    """Links for which the checks read the same share an entry, and others do not."""
    for checks in ("cheap", "all"):
        pl.link(KERNEL, function(), arch=ARCH, checks=checks, backend="nvjitlink")
    assert {"link": 1} == kinds(kept)
    for checks in ("none", "cheap", "all"):
        pl.link(make_kernel(), arch=ARCH, checks=checks, backend="nvjitlink")
    assert {"link": 2} == kinds(kept)
    for checks in ("none", "cheap", "all"):
        pl.link(own(ltoir(CALLER), "k.ltoir"), own(large["right"], "a.ltoir"), arch=ARCH, checks=checks)
    assert 5 == kinds(kept)["link"]


def test_symbols_are_kept_in_the_cache(kept, large, compiled, monkeypatch):
    """What a compilation told of a library is found again by the next process."""
    source = own(large["right"], "a.ltoir")
    first = link_symbols.table(source, ARCH).symbols
    assert ([["a.ltoir"]], {"symbols": 1}) == (compiled, kinds(kept))
    monkeypatch.setattr(link_symbols, "_known", type(link_symbols._known)())
    assert first == link_symbols.table(source, ARCH, deep=False).symbols
    assert [["a.ltoir"]] == compiled


def test_symbols_survive_the_cache():
    """Every field of a symbol is read back as it was written, and anything else is nothing."""
    source = KERNEL + "".join(function(name="g").splitlines(keepends=True)[3:])
    symbols = link_symbols.table(link_inputs.read(source), ARCH).symbols
    structs = Prototype("h", None, (Param(align=8, size=24), Param(bits=32, type="f32")))
    symbols += (Symbol("h", "func", True, True, structs, 7),)
    found = symbol_tables.read(symbol_tables.write(symbols))
    assert symbols == found
    assert [str(each.prototype) for each in symbols] == [str(each.prototype) for each in found]
    for code in (b"", b"{", b"[1]", b'[{"name": "f"}]', b"null"):
        assert symbol_tables.read(code) is None


@pytest.mark.slow
def test_symbols_without_optimisation_are_the_same(large):
    """What a compilation without optimisation tells of a library is what one with it tells."""
    source = own(large["right"], "a.ltoir")
    fast, slow = (
        {each.name: (each.kind, each.defined, each.prototype) for each in symbols}
        for symbols in (
            link_symbols._compiled(source, ARCH),
            link_symbols.of_image(link_symbols.elf.read(link_symbols.unpack(source, ARCH))),
        )
    )
    assert slow == fast


def test_an_unknown_choice_is_an_error(tmp_path, capsys):
    """An unknown value of the argument, the variable or the option names the choices."""
    with pytest.raises(pl.ConfigError, match="checks='some' is unknown; choose all, cheap, none"):
        pl.link(KERNEL, function(), arch=ARCH, checks="some")
    with pytest.raises(
        pl.ConfigError, match="NUMBA_PTXLINK_CHECKS='1' is unknown; set it to all, cheap, none"
    ):
        Config.from_environ({"NUMBA_PTXLINK_CHECKS": "1"})
    path = tmp_path / "k.ptx"
    path.write_text(KERNEL)
    command = ["link", str(path), "--arch", "sm_80", "-o", str(tmp_path / "k.cubin"), "--checks"]
    with pytest.raises(SystemExit):
        main([*command, "some"])
    assert "--checks: 'some' is unknown; choose from all, cheap, none" in capsys.readouterr().err


def test_the_command_takes_the_choice(tmp_path):
    """`numba-ptxlink link --checks` says how much is compared."""
    files = []
    for name, source in (("k", CALLER), ("f", WRONG)):
        files.append(tmp_path / f"{name}.ltoir")
        files[-1].write_bytes(ltoir(source))
    command = ["link", *map(str, files), "--arch", "sm_80", "-o", str(tmp_path / "k.cubin")]
    assert (0, 1) == (main([*command, "--checks", "none"]), main([*command, "--checks=cheap"]))


@pytest.mark.parametrize(("checks", "links"), [("none", True), ("cheap", False)])
def test_the_variable_reaches_numba_kernels(checks, links, monkeypatch):
    """NUMBA_PTXLINK_CHECKS is the default, for links of numba-cuda's too."""
    settings = Config.from_environ({"NUMBA_PTXLINK_CHECKS": checks})
    monkeypatch.setattr(engine, "config", lambda: settings)
    wanted = PtxLinker(cc=(8, 0))
    wanted.add_ltoir(ltoir(CALLER))
    wanted.add_ltoir(ltoir(WRONG))
    if links:
        assert wanted.complete().code
    else:
        with pytest.raises(pl.LinkError, match="f has two prototypes"):
            wanted.complete()


DYNAMIC = """
extern __shared__ int lines[];
extern "C" __device__ int other(int);
extern "C" __global__ void k(int* p) {{ lines[*p] = 1; *p = {call}(*p) + lines[3]; }}
extern "C" __device__ int {name}(int a) {{ lines[a] = a; return lines[1]; }}
"""


@pytest.mark.parametrize("checks", ["cheap", "all"])
@pytest.mark.parametrize("lto", [True, False])
def test_shared_memory_of_the_launch_is_defined_nowhere(lto, checks):
    """Two inputs may both declare the shared memory that a launch gives, by one name."""
    one = DYNAMIC.format(call="other", name="mine")
    two = DYNAMIC.format(call="other", name="other").replace(" k(", " l(")
    linked = pl.link(one, two, arch=ARCH, lto=lto, checks=checks)
    kernels = {each.name for each in pl.inspect(linked.cubin).symbols if each.kind == "entry"}
    assert {"k", "l"} == kernels


def test_a_library_beyond_the_bound_is_not_read_by_default(monkeypatch, compiled):
    """A fat binary that takes as long to read as to link is left alone, unless all checks are asked for."""
    library = packed(WRONG, "cubin")
    caller = link_inputs.Input("ptx", "k.ptx", nvrtc.compile_source(CALLER, "k.cu", ARCH, output="ptx").code)
    inputs = (caller, own(library, "f.fatbin", "fatbin"))
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(*inputs, arch=ARCH)
    monkeypatch.setattr(link_checks, "READABLE", len(library) - 1)
    monkeypatch.setattr(link_checks, "SMALL", 0)
    assert ("2",) == link_checks.unread(inputs, "cheap")
    tables = link_checks._tables(inputs, ARCH, lto=False, checks="cheap")
    assert [True, False] == [table.symbols is not None for table in tables]
    with pytest.raises(pl.LinkError, match=r"f has two prototypes"):
        pl.link(*inputs, arch=ARCH, checks="all")
    assert [] == compiled


def test_what_the_linker_drops_out_of_ltoir_is_explained():
    """Of a symbol that is undefined in spite of its definition, the message says what became of that."""
    caller = link_inputs.Input("ptx", "k.ptx", nvrtc.compile_source(CALLER, "k.cu", ARCH, output="ptx").code)
    tables = [
        link_symbols.table(each, ARCH) for each in (caller, own(ltoir(CALLEE.format(value=1)), "a.ltoir"))
    ]
    said = explain.explain("error: Undefined reference to 'f' in 'k.ptx'", tables)
    assert "f is asked for by k.ptx and defined in a.ltoir, out of which the linker dropped it" in said
    assert "Add the input" not in said
    both = explain.explain("Undefined reference to 'f' in 'k.ptx'\nUndefined reference to 'g' in ''", tables)
    assert both.endswith(
        "g is asked for and defined in no input.\nAdd the input that defines it, or correct the name."
    )


def test_a_kernel_makes_the_linker_drop_functions_of_ltoir():
    """What only PTX calls is kept in LTO-IR without a kernel, and lost beside one: the message says so."""
    caller = nvrtc.compile_source(CALLER, "k.cu", ARCH, output="ptx").code
    callee = CALLEE.format(value=1)
    libraries = [own(ltoir(code), "a.ltoir") for code in (callee, callee + "__global__ void other() {}")]
    assert pl.link(caller, libraries[0].code, arch=ARCH).cubin
    with pytest.raises(pl.LinkError, match="where LTO-IR holds a kernel, it takes for unused"):
        pl.link(caller, libraries[1].code, arch=ARCH)
