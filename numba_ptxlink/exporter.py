"""Python functions to C symbols: `udf` marks them, `export` writes header, artifacts and manifest."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _cnames, _fatbin, _header, _numba, _ptx, abi, assembler
from ._target import Arch, ArchLike
from .errors import AbiError, ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["EMIT", "Export", "Udf", "export", "udf"]

EMIT = ("ptx", "ltoir", "cubin", "fatbin")
"""The kinds of artifact that an export can write."""

_MANIFEST_FORMAT = 1
# Symbols that ptxas and the device runtime supply themselves.
_SUPPLIED = frozenset({"vprintf", "malloc", "free", "__assertfail"})


class Udf:
    """
    A Python function with a C signature. Calling it calls the Python function.

    Numba device functions may call it too.
    """

    def __init__(self, function: Callable[..., Any], signature: Any, options: abi.AbiOptions) -> None:
        # A function that cuda.jit or njit has wrapped already.
        function = getattr(function, "py_func", function)
        if not inspect.isfunction(function):
            raise ExportError(
                f"udf() decorates Python functions, not {type(function).__name__}: {function!r}."
            )
        self.function = function
        self.signature = signature
        self.options = options
        self.name = _cnames.check(options.abi_name or function.__name__, f"function {function.__qualname__}")
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the Python function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<udf {self.name}: {self.signature}>"

    @functools.cached_property
    def _dispatcher(self) -> Any:
        from numba import cuda

        return cuda.jit(device=True)(self.function)

    @property
    def _numba_type_(self) -> Any:
        # Numba asks a global for its type by this name; typed so, the UDF is a device function to others.
        return self._dispatcher._numba_type_

    @property
    def source(self) -> str:
        """Where the function is defined, as "file.py:line"."""
        code = self.function.__code__
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def udf(
    signature: Any, *, name: str | None = None, on_error: str = "zero"
) -> Callable[[Callable[..., Any]], Udf]:
    """
    Mark a Python function for export with the C ABI. It stays callable as plain Python.

    Args:
        signature: Its Numba signature, such as "float32(float32, float32)", or a tuple of argument types
            where Numba is to infer the return type.
        name: The C symbol; the function's `__name__` by default.
        on_error: What it does where Python would raise: "zero" returns a zero-initialised value, "trap"
            stops the kernel.

    Raises:
        AbiError: The name is no legal C name, or *on_error* is unknown.
        ExportError: What is decorated is no Python function.
    """
    if callable(signature) and not hasattr(signature, "return_type"):
        raise ExportError('udf() needs a signature: write @udf("float32(float32)").')
    abi_info = {"on_error": on_error} if name is None else {"abi_name": name, "on_error": on_error}
    options = abi.AbiOptions.of(abi_info)
    return lambda function: Udf(function, signature, options)


@dataclass(frozen=True)
class Export:
    """
    What an export wrote.

    Args:
        header: The C and C++ header.
        manifest: The JSON file that lists functions, artifacts and tool versions.
        artifacts: Every artifact by (kind, arch), with arch "" for the fat binary.
        signatures: The C signature of each function.
    """

    header: Path
    manifest: Path
    artifacts: dict[tuple[str, str], Path]
    signatures: tuple[abi.Signature, ...]


@dataclass(frozen=True)
class _Compiled:
    """All functions of an export for one arch."""

    arch: Arch
    signatures: tuple[abi.Signature, ...]
    modules: tuple[str, ...]


def export(
    source: ModuleType | str | Path | Iterable[Udf],
    out_dir: str | Path,
    *,
    archs: Sequence[ArchLike] = ("sm_75",),
    emit: Sequence[str] = EMIT,
    name: str | None = None,
    opt: bool = True,
    fastmath: bool = False,
    lineinfo: bool = False,
) -> Export:
    """
    Compile UDFs to C symbols. Needs neither a GPU nor a driver.

    Files are written when everything has been compiled, each atomically; an error leaves earlier ones as they
    were. The same functions and tools give the same bytes.

    Args:
        source: A module or the path of a Python file, of which the UDFs it defines are taken in their order,
            or the UDFs themselves.
        out_dir: Where the files go; made if missing.
        archs: The GPUs to generate code for.
        emit: Which artifacts to write, of "ptx", "ltoir", "cubin" (relocatable) and "fatbin".
        name: The files' stem; the module's by default.
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code carries the Python line numbers.

    Raises:
        ExportError: The file could not be imported or holds no UDF, or a compiler refused a function.
        AbiError: A function's name or types have no counterpart in C.
        AssembleError: The PTX could not be assembled.
    """
    parsed = tuple(dict.fromkeys(Arch.of(arch) for arch in archs))
    kinds = _check_emit(emit)
    if not parsed:
        raise ExportError('export() needs at least one arch, such as "sm_90".')
    with _loaded(source) as (default_name, udfs):
        stem = name or default_name
        _check_names(udfs)
        options = {"opt": opt, "fastmath": fastmath, "lineinfo": lineinfo}
        compiled = [_compile(udfs, arch, options) for arch in parsed]
        declarations = [_declare(each, sig) for each, sig in zip(udfs, compiled[0].signatures, strict=True)]
    files: dict[tuple[str, str], bytes] = {}
    packed: list[tuple[str, Arch, str, bytes]] = []
    externs: dict[str, str] = {}
    for each in compiled:
        made, found = _emit(each, kinds, options)
        externs.update(found)
        packed += [(kind, each.arch, f"{stem}.{each.arch.sm}.{kind}", code) for kind, code in made.items()]
        files.update({(kind, each.arch.sm): code for kind, code in made.items() if kind in kinds})
    if "fatbin" in kinds:
        files["fatbin", ""] = _fatbin.pack(packed)
    header = _header.render(stem, declarations)
    names = {key: ".".join(part for part in (stem, key[1], key[0]) if part) for key in files}
    manifest = {
        "format": _MANIFEST_FORMAT,
        "name": stem,
        "header": _entry(f"{stem}.h", header.encode()),
        "archs": [arch.sm for arch in parsed],
        "functions": [_describe(each) for each in declarations],
        "externs": [{"name": key, "prototype": externs[key]} for key in sorted(externs)],
        "artifacts": [
            {"kind": kind, "arch": arch or None, **_entry(names[kind, arch], files[kind, arch])}
            for kind, arch in files
        ],
        "options": options,
        "tools": _tools(),
    }
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for key, code in files.items():
        _write(out / names[key], code)
    _write(out / f"{stem}.h", header.encode())
    _write(out / f"{stem}.json", json.dumps(manifest, indent=2).encode() + b"\n")
    return Export(
        header=out / f"{stem}.h",
        manifest=out / f"{stem}.json",
        artifacts={key: out / names[key] for key in files},
        signatures=compiled[0].signatures,
    )


def compile_udfs(udfs: Sequence[Udf], arch: Arch, kind: str) -> bytes:
    """Compile *udfs* to one piece of PTX or LTO-IR, as *kind* says, with the default options."""
    _check_names(udfs)
    options = {"opt": True, "fastmath": False, "lineinfo": False}
    return _emit(_compile(udfs, arch, options), (kind,), options)[0][kind]


def _check_emit(emit: Sequence[str]) -> tuple[str, ...]:
    kinds = (emit,) if isinstance(emit, str) else tuple(emit)
    for kind in kinds:
        if kind not in EMIT:
            raise ExportError(f"Cannot emit {kind!r}; the kinds are {', '.join(EMIT)}.")
    return kinds


def _check_names(udfs: Sequence[Udf]) -> None:
    taken: list[str] = []
    for each in udfs:
        _cnames.check(each.name, f"function {each.function.__qualname__} ({each.source})", taken)
        taken.append(each.name)


@contextmanager
def _loaded(source: Any) -> Iterator[tuple[str, tuple[Udf, ...]]]:
    if isinstance(source, (str, Path)):
        with _imported(Path(source)) as module:
            yield Path(source).stem, _defined_in(module)
    elif isinstance(source, ModuleType):
        yield source.__name__.rpartition(".")[2], _defined_in(source)
    else:
        udfs = tuple(source)
        for each in udfs:
            if not isinstance(each, Udf):
                raise ExportError(f"export() takes functions marked with @udf, not {each!r}.")
        if not udfs:
            raise ExportError("export() was given no UDF; mark functions with @udf.")
        yield udfs[0].name, udfs


def _defined_in(module: ModuleType) -> tuple[Udf, ...]:
    found = dict.fromkeys(
        value
        for value in vars(module).values()
        if isinstance(value, Udf) and value.function.__module__ == module.__name__
    )
    if not found:
        raise ExportError(f"{module.__name__} defines no UDF; mark functions with @udf(signature).")
    return tuple(found)


@contextmanager
def _imported(path: Path) -> Iterator[ModuleType]:
    if not path.is_file():
        raise ExportError(f"{path} is no file; give the path of a Python file.")
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_ptxlink_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ExportError(f"{path} cannot be imported as Python; give the path of a .py file.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.insert(0, folder)
    try:
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ExportError(
                f"{path} failed while it was imported: {type(error).__name__}: {error}. Mend the file."
            ) from error
        yield module
    finally:
        sys.path.remove(folder)
        sys.modules.pop(name, None)


def _compile(udfs: Sequence[Udf], arch: Arch, options: dict[str, bool]) -> _Compiled:
    from numba.cuda.core import sigutils

    from . import _wrapper

    signatures: list[abi.Signature] = []
    libraries: list[Any] = []
    for each in udfs:
        try:
            args, result = sigutils.normalize_signature(each.signature)
        except Exception as error:
            raise AbiError(
                f"Function {each.name} ({each.source}): {each.signature!r} is no Numba signature ({error}); "
                'write it like "float32(float32, int64)".'
            ) from error
        if result is not None:
            _c_signature(each, result, args)
        try:
            compiled = _numba.compile_function(each.function, args, result, arch, **options)
        except Exception as error:
            raise ExportError(
                f"Numba could not compile {each.name} ({each.source}) for {arch.sm}: {error}"
            ) from error
        signature = _c_signature(each, compiled.signature.return_type, args)
        _wrapper.emit(compiled, signature, each.options, inline=options["opt"])
        signatures.append(signature)
        libraries.append(compiled.library)
    return _Compiled(arch, tuple(signatures), tuple(_numba.ordered_modules(libraries)))


def _c_signature(each: Udf, result: Any, args: Sequence[Any]) -> abi.Signature:
    names = list(inspect.signature(each.function).parameters)
    if len(names) != len(args):
        raise AbiError(
            f"Function {each.name} ({each.source}) has {len(names)} parameters and its signature "
            f"{each.signature} has {len(args)}; make them agree."
        )
    safe = [name if _cnames.is_free(name) else f"{name}_" for name in names]
    return abi.c_signature(each.name, result, zip(safe, args, strict=True))


def _emit(
    compiled: _Compiled, kinds: Sequence[str], options: dict[str, bool]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the artifacts of one arch by kind, and the prototypes of symbols they leave undefined."""
    ptx = _nvvm(compiled, options, lto=False)
    found = list(_ptx.functions(ptx.decode()))
    visible = {f.prototype.name: f.prototype for f in found if f.defined and f.linkage == "visible"}
    for signature in compiled.signatures:
        if visible.get(signature.name) != signature.prototype:
            raise ExportError(
                f"NVVM gave {signature.name} the prototype {visible.get(signature.name)} where C++ has "
                f"{signature.prototype}; please report this with the function's signature."
            )
    defined = {f.prototype.name for f in found if f.defined}
    externs = {
        f.prototype.name: str(f.prototype)
        for f in found
        if f.linkage == "extern" and f.prototype.name not in defined | _SUPPLIED
    }
    made: dict[str, bytes] = {}
    wanted = set(kinds) | ({"ptx", "ltoir", "cubin"} if "fatbin" in kinds else set())
    if "ptx" in wanted:
        made["ptx"] = ptx
    if "ltoir" in wanted:
        made["ltoir"] = _nvvm(compiled, options, lto=True)
    if "cubin" in wanted:
        assembled = assembler.assemble(
            ptx,
            compiled.arch,
            relocatable=True,
            opt_level=3 if options["opt"] else 0,
            lineinfo=options["lineinfo"],
        )
        made["cubin"] = assembled.code
    return made, externs


def _nvvm(compiled: _Compiled, options: dict[str, bool], *, lto: bool) -> bytes:
    flags: dict[str, Any] = {
        "arch": compiled.arch.compute,
        "opt": 3 if options["opt"] else 0,
        "fastmath": options["fastmath"],
    }
    if lto:
        flags["gen_lto"] = None
    try:
        code = _numba.compile_ir(compiled.modules, **flags)
    except Exception as error:
        names = ", ".join(signature.name for signature in compiled.signatures)
        raise ExportError(
            f"NVVM could not compile {names} for {compiled.arch.sm}: {error}. "
            "Check that `numba-ptxlink doctor` lists the arch."
        ) from error
    return code if lto else code.rstrip(b"\0").strip() + b"\n"


def _declare(each: Udf, signature: abi.Signature) -> _header.Declaration:
    doc = inspect.getdoc(each.function) or ""
    return _header.Declaration(
        signature=signature,
        python=f"{each.function.__qualname__}: {each.signature}",
        summary=doc.splitlines()[0] if doc else "",
        source=each.source,
    )


def _describe(each: _header.Declaration) -> dict[str, Any]:
    return {
        "symbol": each.signature.name,
        "python": each.python,
        "source": each.source,
        "declaration": f"{each.signature};",
        "prototype": str(each.signature.prototype),
        "result": each.signature.result.name,
        "parameters": [{"name": name, "type": ctype.name} for name, ctype in each.signature.params],
    }


def _entry(name: str, code: bytes) -> dict[str, Any]:
    return {"file": name, "bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}


def _tools() -> dict[str, str]:
    versions = {"nvptxcompiler": "{}.{}".format(*assembler.compiler_version())}
    for package in ("numba-ptxlink", "numba-cuda", "numba", "llvmlite", "nvidia-nvvm", "nvidia-nvfatbin"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _write(path: Path, content: bytes) -> None:
    """Write *content* so that a reader sees the old file or the new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
        temporary.write(content)
    staged = Path(temporary.name)
    staged.chmod(0o644)
    staged.replace(path)
