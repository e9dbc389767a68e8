"""
What ptxcompiler and pynvjitlink promised in their tests, asked of this package.

Each test names the behaviour; how it is reached here is in docs/migration.md.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import fakedevice
import numba.cuda  # noqa: F401 - enable() waits for it
import pytest
from linkcases import CALLEE, CALLER, KERNEL, cubin, function, ltoir
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import _plugin, assembler
from numba_ptxlink._numba_cuda import release
from numba_ptxlink._tools import driver as cuda_driver
from numba_ptxlink._tools import nvfatbin, nvjitlink
from numba_ptxlink.linker import PtxLinker

SM_80, SM_90 = pl.Arch.of("sm_80"), pl.Arch.of("sm_90")
ELF = b"\x7fELF"


class TestPtxcompiler:
    """ptxcompiler: PTX to a cubin, and a patch for numba.cuda."""

    def test_the_compiler_has_a_version(self):
        """The compiler is of CUDA 11.1 or newer."""
        assert (11, 1) <= assembler.compiler_version()

    def test_compilers_come_and_go(self):
        """Handles are made and given back, also in threads and after an error."""

        def use(_):
            magic = pl.assemble(make_kernel(), "sm_80").code[:4]
            with pytest.raises(pl.AssembleError):
                pl.assemble("nonsense", "sm_80")
            return magic

        with ThreadPoolExecutor(4) as pool:
            assert [ELF] * 4 == list(pool.map(use, range(4)))

    def test_the_product_is_an_elf_image_and_its_log_is_empty(self):
        """A clean compilation yields an ELF image and says nothing."""
        made = pl.assemble(make_kernel(), "sm_80")
        assert (ELF, "") == (made.code[:4], made.info_log)

    def test_debug_leaves_its_sections(self):
        """With debug the image has NVIDIA's debug sections, and without it has none."""
        assert b"nv_debug" in pl.assemble(make_kernel(), "sm_80", debug=True).code
        assert b"nv_debug" not in pl.assemble(make_kernel(), "sm_80").code

    def test_a_bad_option_is_named(self):
        """An option that does not exist fails with the compiler's words in the log."""
        with pytest.raises(pl.AssembleError) as caught:
            pl.assemble(make_kernel(), "sm_80", extra_flags=("--bad-option",))
        assert "Unknown option" in caught.value.log

    def test_a_missing_version_is_named(self):
        """PTX without a .version fails with the compiler's words in the log."""
        with pytest.raises(pl.AssembleError) as caught:
            pl.assemble(".target sm_80\n.address_size 64\n", "sm_80")
        assert "Missing .version directive" in caught.value.log

    def test_an_unsupported_numba_is_refused(self, monkeypatch):
        """Where numba-cuda cannot be served, asking for it is an error that says why."""
        pl.disable()
        monkeypatch.setattr(release, "unsupported_reason", lambda: "numba-cuda 0.1 is not supported")
        with pytest.raises(pl.ActivationError, match=r"cannot be enabled: numba-cuda 0\.1 is not supported"):
            pl.enable()
        monkeypatch.undo()
        assert pl.enable().active

    @pytest.mark.parametrize(
        ("driver", "expected"), [((13, 0), True), ((99, 0), False), ((12, 9), True), (None, False)]
    )
    def test_versions_decide_without_a_subprocess(self, monkeypatch, driver, expected):
        """Whether the driver is older than the toolkit is compared here, in this process."""
        monkeypatch.setattr(cuda_driver, "version", lambda: driver)
        assert expected is _plugin.driver_is_older()[0]

    def test_the_patch_can_be_forced(self):
        """enable() takes over whatever the versions say."""
        pl.disable()
        status = pl.enable()
        assert (True, "enable() was called") == (status.active, status.reason)


class TestPynvjitlinkLinker:
    """pynvjitlink: nvJitLink's interface."""

    def test_a_linker_needs_an_architecture(self):
        """Nothing is linked for no architecture."""
        with pytest.raises(TypeError, match="arch"):
            pl.link(KERNEL)

    @pytest.mark.parametrize("arch", ["sm_XX", "", "compute", 90, (9,)])
    def test_an_invalid_architecture_is_an_error(self, arch):
        """What is no architecture is refused before a tool is asked."""
        with pytest.raises(pl.ConfigError, match="is not a GPU architecture"):
            pl.link(KERNEL, function(), arch=arch)

    def test_an_unknown_architecture_is_an_error(self):
        """An architecture that no tool knows is the tool's error."""
        with pytest.raises(pl.LinkError, match="accept its flags"):
            pl.link(KERNEL, function(), arch="sm_999")

    def test_an_unrecognised_option_is_an_error(self):
        """A flag that nvJitLink does not know is refused, and is in the message."""
        with pytest.raises(pl.LinkError, match="-fictitious"):
            pl.link(KERNEL, function(), arch="sm_80", extra_flags=("-fictitious",))

    def test_an_empty_link_is_an_error(self):
        """There is nothing to complete without an input."""
        with pytest.raises(pl.LinkError, match="at least one input"):
            pl.link(arch="sm_80")
        with pytest.raises(pl.LinkError, match="add an input first"):
            PtxLinker(cc=(8, 0)).complete()

    @pytest.mark.parametrize("kind", ["ptx", "cubin", "ltoir", "fatbin"])
    def test_a_file_of_each_kind(self, kind, tmp_path):
        """A file of each kind is added by its extension, and linked."""
        code = {
            "ptx": lambda: function().encode(),
            "cubin": lambda: cubin(function()),
            "ltoir": lambda: ltoir(CALLEE.format(value=1)),
            "fatbin": lambda: nvfatbin.pack([("cubin", SM_80, "f", cubin(function()))]),
        }[kind]()
        path = tmp_path / f"callee.{kind}"
        path.write_bytes(code)
        assert ELF == pl.link(KERNEL, path, arch="sm_80").cubin[:4]
        linker = PtxLinker(cc=(8, 0))
        linker.add_ptx(KERNEL)
        linker.add_file_guess_ext(str(path))
        assert ELF == linker.complete().code[:4]

    def test_an_incompatible_architecture_is_an_error(self):
        """A cubin for another architecture is refused by name."""
        with pytest.raises(pl.LinkError, match="holds machine code for sm_90"):
            pl.link(KERNEL, cubin(function(), "sm_90"), arch="sm_80")

    def test_a_fatbin_serves_each_of_its_architectures(self):
        """A fat binary gives the code for the architecture of the link, and for no other."""
        packed = nvfatbin.pack(
            [
                ("cubin", SM_80, "f", cubin(function())),
                ("cubin", SM_90, "f", cubin(function(), "sm_90")),
            ]
        )
        for arch in ("sm_80", "sm_90"):
            assert ELF == pl.link(KERNEL, packed, arch=arch).cubin[:4]
        with pytest.raises(pl.LinkError, match="failed to read the fatbin"):
            pl.link(KERNEL.replace("sm_80", "sm_75"), packed, arch="sm_75")

    @pytest.mark.parametrize(("says", "holds"), [("cubin", "fatbin"), ("fatbin", "cubin"), ("ptx", "cubin")])
    def test_a_wrong_kind_is_an_error(self, says, holds, tmp_path):
        """A file whose content is of another kind than its extension says is refused."""
        code = cubin(function())
        path = tmp_path / f"callee.{says}"
        path.write_bytes(code if holds == "cubin" else nvfatbin.pack([("cubin", SM_80, "f", code)]))
        with pytest.raises(pl.LinkError, match=rf"extension says {says} and its content is {holds}"):
            pl.link(KERNEL, path, arch="sm_80")

    def test_an_undefined_symbol_is_in_the_log(self):
        """The error log of a failed link names the undefined symbol."""
        undefined = KERNEL.replace("f(", "_Z5undefff(").replace(", f,", ", _Z5undefff,")
        linker = PtxLinker(cc=(8, 0))
        linker.add_cubin(cubin(undefined), "undefined_extern.cubin")
        with pytest.raises(pl.LinkError):
            linker.complete()
        expected = "Undefined reference to '_Z5undefff' in 'undefined_extern.cubin'"
        assert expected in linker.error_log
        assert "" == linker.info_log

    def test_the_info_log_is_empty_after_a_clean_link(self):
        """A clean link says nothing, and its logs are readable."""
        linker = PtxLinker(cc=(8, 0))
        linker.add_cubin(cubin(make_kernel()))
        linker.complete()
        assert ("", "") == (linker.info_log, linker.error_log)

    def test_an_incomplete_link_has_no_product(self):
        """Logs before completion are an error."""
        linker = PtxLinker(cc=(8, 0))
        with pytest.raises(ValueError, match="Not Initialized"):
            _ = linker.info_log
        with pytest.raises(ValueError, match="Not Initialized"):
            _ = linker.error_log

    def test_ltoir_links_to_a_cubin_and_to_ptx(self):
        """LTO-IR becomes a cubin, or the PTX after link-time optimisation."""
        whole = ltoir(CALLEE.format(value=7) + CALLER.partition(";")[2])
        assert ELF == pl.link(whole, arch="sm_80").cubin[:4]
        linker = PtxLinker(cc=(8, 0), lto=True)
        linker.add_ltoir(whole)
        text = linker.get_linked_ptx().decode()
        assert ".visible .entry k" in text
        assert "call" not in text

    def test_versions_are_known(self):
        """The version of nvJitLink and this package's are there."""
        assert (12, 0) <= nvjitlink.version()
        assert pl.__version__


class TestPynvjitlinkPatch:
    """pynvjitlink: the linker class that numba-cuda uses."""

    def test_the_patch_is_applied(self):
        """Once enabled, numba-cuda's driver module names this package's linker."""
        from numba.cuda.cudadrv import driver

        pl.enable()
        assert driver._Linker is PtxLinker

    @pytest.mark.parametrize("cc", [None, 0, "80"])
    def test_a_missing_or_mistyped_cc_is_an_error(self, cc):
        """A compute capability is two or three values, and nothing else will do."""
        with pytest.raises(pl.LinkError, match="needs cc"):
            PtxLinker(cc=cc)

    @pytest.mark.parametrize("cc", [(0, 0), (-1, 0), (9, 0, "b"), (9,)])
    def test_an_invalid_cc_is_an_error(self, cc):
        """A compute capability that cannot be is refused."""
        with pytest.raises(pl.ConfigError):
            PtxLinker(cc=cc)

    @pytest.mark.parametrize(
        ("max_registers", "lineinfo", "lto", "additional_flags"),
        list(itertools.product((None, 32), (False, True), (False, True), (None, ["-g"], ["-ptx"]))),
    )
    def test_the_option_matrix(self, max_registers, lineinfo, lto, additional_flags):
        """Every mixture of options links."""
        linker = PtxLinker(max_registers, lineinfo, (8, 0), lto, additional_flags)
        linker.add_ptx(make_kernel())
        assert ELF == linker.complete().code[:4]
        flags = " ".join(linker.linker.flags)
        assert ("maxrregcount=32" in flags) is (max_registers == 32)
        assert ("line-info" in flags or "lineinfo" in flags) is lineinfo

    @pytest.mark.parametrize("content", [b"", b"\x01\x02\x03", b"\x7fELF"])
    def test_invalid_input_is_an_error(self, content, tmp_path):
        """Files that hold nothing of their kind fail, whatever their extension says."""
        for extension in ("cubin", "fatbin", "ltoir", "ptx"):
            path = tmp_path / f"input.{extension}"
            path.write_bytes(content)
            linker = PtxLinker(cc=(8, 0))
            linker.add_ptx(KERNEL)
            linker.add_file_guess_ext(str(path))
            with pytest.raises(pl.LinkError):
                linker.complete()

    @pytest.mark.parametrize("lto", [False, True])
    def test_jit_with_linkable_code(self, lto, monkeypatch):
        """`@cuda.jit` links LinkableCode of each kind, with and without LTO."""
        from numba import cuda, types
        from numba.cuda.cudadrv import linkable_code

        pl.enable()
        fakedevice.install(monkeypatch.setattr)
        codes = [
            linkable_code.PTXSource(function()),
            linkable_code.Cubin(cubin(function())),
            linkable_code.Fatbin(nvfatbin.pack([("cubin", SM_80, "f", cubin(function()))])),
            linkable_code.CUSource(CALLEE.format(value=1)),
            linkable_code.LTOIR(ltoir(CALLEE.format(value=1))),
        ]
        for code in codes:
            f = cuda.declare_device("f", "int32(int32)", abi="c", link=code)

            def kernel(x):
                x[0] = f(x[0])  # noqa: B023 - compiled before the next turn

            _, made = fakedevice.compile_kernel(kernel, (types.int32[::1],), lto=lto)
            assert ELF == made.code[:4]

    def test_jit_with_invalid_linkable_code(self, monkeypatch):
        """Code that is damaged, or for another architecture, is an error at compilation."""
        from numba import cuda, types
        from numba.cuda.cudadrv import linkable_code
        from numba.cuda.cudadrv.driver import LinkerError

        pl.enable()
        fakedevice.install(monkeypatch.setattr)
        for code in (b"", cubin(function(), "sm_90"), cubin(function())[:500]):
            f = cuda.declare_device("f", "int32(int32)", abi="c", link=linkable_code.Cubin(code))

            def kernel(x):
                x[0] = f(x[0])  # noqa: B023 - compiled before the next turn

            with pytest.raises(LinkerError):
                fakedevice.compile_kernel(kernel, (types.int32[::1],), lto=False)
