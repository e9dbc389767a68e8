"""
Break the package, one text at a time, and print the changes that the tests catch.

`python tests/mutants.py [--only area]` changes one text in a copy of the package at a time and runs the tests
that should fail. A mutant is a file, a text that it has once, what stands there instead, and the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The finder of an editable installation would find the package before the copy.
SITE = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"

COMPILE = "link/test_link_compile.py link/test_quoted_includes.py link/test_declarations.py"
CHECK = "link/test_check.py link/test_undefined.py"
PLAN = "link/test_link_plan.py link/test_target_release.py"
FUSION = (
    "link/test_fusion.py link/test_fusion_control.py link/test_local_memory.py link/test_address_spaces.py"
)
PTX = "formats link/test_fusion.py"
PROGRAMS = "ptx_machine/test_fused.py"
ABI = "test_abi.py cabi"
IMPORTS = "test_export_imports.py test_export_depfile.py"
HOST, INSTRUCTIONS = "export/test_host.py", "cpu/test_host_source.py -mslow"
ACTIVE = "front_end test_plugin.py"
CPU_PROGRAMS = "cpu/test_cpu_programs.py"
ASYNC = "cpu/test_cpu_async.py"

MUTANTS: dict[str, list[tuple[str, str, str, str]]] = {
    "linking": [
        ("_link/read.py", "    if kind is None:\n", "    if kind is not None:\n", "link/test_read.py"),
        (
            "_link/read.py",
            "declared_kind not in (None, CU, kind)",
            "declared not in (None, CU)",
            "link/test_read.py",
        ),
        (
            "_link/read.py",
            "    return code.removeprefix(codecs.BOM_UTF8)",
            "    return code",
            "link/test_read.py",
        ),
        ("_link/compile.py", "kind = LTOIR if lto else PTX", "kind = PTX", f"{COMPILE} test_linker.py"),
        ("_link/compile.py", "folder = source.path and source.path.parent", "folder = None", COMPILE),
        ("_link/compile.py", " if defined.get(function.name) is False]", "]", COMPILE),
        ("_link/symbols.py", "(first.result is None) != (", "(first.result is not None) != (", CHECK),
        ("_link/symbols.py", "a.align == b.align or", "a.align != b.align or", CHECK),
        ("_link/check.py", "if source.kind == PTX]\n", "if source.kind != PTX]\n", CHECK),
        (
            "_link/symbols.py",
            "(a.bits, a.size) == (b.bits, b.size)",
            "a.size == b.size",
            CHECK,
        ),
        ("_link/symbols.py", "if len(strong) > 1:", "if len(strong) > 2:", CHECK),
        (
            "_link/symbols.py",
            "smallest is None or smallest.size == sized",
            "smallest is None or sized",
            CHECK,
        ),
        ("_link/backends.py", "if release > self.newest_release", "if release >= self.newest_release", PLAN),
        ("_link/backends.py", "version <= newest:", "version < newest:", PLAN),
        ("_link/backends.py", "return min(programs, drivers)", "return max(programs, drivers)", PLAN),
        ("_link/plan.py", "rejection.rank < Rank.UNUSABLE)", "rejection.rank <= Rank.UNUSABLE)", PLAN),
        ("_link/fuse.py", "if options.debug or not options", "if options.debug and not options", PLAN),
        ("_tools/options.py", "if values[name] is None}", "}", PLAN),
        (
            "_link/run.py",
            "len(link_plan.inputs) == 1 and",
            "len(link_plan.inputs) != 1 and",
            "test_linker.py",
        ),
        ("_link/run.py", "if retry is None:", "if retry is not None:", "link/test_read.py"),
        ("linker.py", "if chosen is not None and chosen", "if chosen is None and chosen", "test_linker.py"),
        ("_tools/source_options.py", "if mapping is None:", "if mapping is not None:", "test_linker.py"),
        (
            "assembler.py",
            "if part in compiler_log), _DEFAULT_CURE)",
            "if part not in compiler_log), _DEFAULT_CURE)",
            "test_assembler.py",
        ),
    ],
    "fusion": [
        (
            "_fusion/body.py",
            "self._memory_slots.get(declared or name)",
            "self._memory_slots.get(declared and name)",
            FUSION,
        ),
        (
            "_fusion/register_pieces.py",
            "len(modifiers) - len(lengths)",
            "len(modifiers) + len(lengths)",
            FUSION,
        ),
        ("_fusion/register_pieces.py", "offset % access_size or not", "not", FUSION),
        (
            "_fusion/register_pieces.py",
            '"s" if element_type[0] == "s" else "u"',
            '"u"',
            f"{FUSION} ptx_machine/test_fused.py",
        ),
        ("_fusion/combine.py", "first.alignment) != (second", "first.alignment) == (second", FUSION),
        (
            "_fusion/combine.py",
            "not isinstance(item, ptx.Declaration):",
            "isinstance(item, ptx.Declaration):",
            FUSION,
        ),
        ("_fusion/local_memory.py", "len(pieces) > MAX_PIECES or", "len(pieces) > MAX_PIECES and", FUSION),
        (
            "_fusion/local_memory.py",
            "if not other_variables and declared.count",
            "if other_variables and declared.count",
            FUSION,
        ),
        ("_fusion/local_memory.py", "offset=address.offset + offset)", "offset=address.offset)", FUSION),
        ("_link/fuse.py", '"inlined": product.count', '"inlined": 0', FUSION),
        (
            "_fusion/inline.py",
            "if callee.size > MAX_SMALL_INSTRUCTIONS and",
            "if callee.size < MAX_SMALL_INSTRUCTIONS and",
            FUSION,
        ),
        ("_fusion/inline.py", "if body.indirect_calls == 1 else", "if body.indirect_calls != 1 else", FUSION),
        ("_fusion/inline.py", "            if not reason:", "            if reason:", FUSION),
        ("_fusion/inline.py", "[] if falls_through else [", "[] if True else [", "ptx_machine/test_fused.py"),
        (
            "_fusion/address_spaces.py",
            "or destination != target.name:",
            "or destination == target.name:",
            FUSION,
        ),
        (
            "_fusion/address_spaces.py",
            "writers.get(register.name, ())",
            "writers.get(register.name, ())[:1]",
            FUSION,
        ),
        ("_formats/ptx/lexer.py", "if not depth:", "if depth:", PTX),
        ("_formats/ptx/module.py", "[start + 1 : end - 1]", "[start + 1 : end + 1]", PTX),
        ("_fusion/body.py", "if opcode in _JUMP_OPCODES:", "if opcode not in _JUMP_OPCODES:", FUSION),
        ("_formats/ptx/variables.py", "texts[self.index] == text", "texts[self.index] != text", PTX),
    ],
    # Executed programs reveal these mutants.
    "fused programs": [
        (
            "_fusion/register_pieces.py",
            'whole, f"{{{low}, {high}}}")',
            'whole, f"{{{high}, {low}}}")',
            PROGRAMS,
        ),
        (
            "_fusion/register_pieces.py",
            'f"{{{low}, {high}}}", whole)',
            'f"{{{high}, {low}}}", whole)',
            PROGRAMS,
        ),
        (
            "_fusion/register_pieces.py",
            "self._join(offset + half, half)",
            "self._join(offset, half)",
            PROGRAMS,
        ),
        ("_fusion/register_pieces.py", ", guard=self._guard)", ")", PROGRAMS),
        (
            "_fusion/register_pieces.py",
            "offset + address[1], element_type",
            "address[1], element_type",
            "link/test_local_memory.py",
        ),
        (
            "_fusion/register_pieces.py",
            "self.offset + size * index, size",
            "self.offset + size * (len(self.values) - 1 - index), size",
            PROGRAMS,
        ),
        ("_fusion/register_pieces.py", "number & 255)", "number & 127)", PROGRAMS),
        ("_fusion/register_pieces.py", "yield offset - offset % size, size", "yield offset, size", PROGRAMS),
        ("_fusion/register_pieces.py", "if size == 1 or bits > size * 8:", "if size == 1:", PROGRAMS),
        ("_fusion/inline.py", "if not call.guard:", "if True:", PROGRAMS),
        ("_fusion/inline.py", '"!" else f"@!{register}"', '"?" else f"@{register}"', PROGRAMS),
        ("_fusion/inline.py", '"bra", end, guard=guard)', '"bra", end)', PROGRAMS),
        ("_fusion/inline.py", "- 1 and not guard", "- 1 or guard", PROGRAMS),
        ("_fusion/inline.py", 'f"[{name}+{access.offset}]"', 'f"[{name}]"', PROGRAMS),
        ("_fusion/inline.py", ", guard=access.guard)", ")", PROGRAMS),
        ("_fusion/inline.py", "if access.is_store else operands[::-1]", "", PROGRAMS),
        ("_fusion/inline.py", '{self._prefix}{self._count}_"', '{self._prefix}_"', FUSION),
        ("_fusion/address_spaces.py", 'in (["global"], ["to", "global"])', 'or ["global"]', PROGRAMS),
        ("_fusion/address_spaces.py", "return [] if is_kernel_param else None", "return []", PROGRAMS),
        ("_fusion/address_spaces.py", "readers.get(register, ())", "()", PROGRAMS),
    ],
    "C ABI": [
        (
            "_cabi/aggregates.py",
            "is_numba_layout=all(map(_has_same_offset, types)))",
            "is_numba_layout=True)",
            ABI,
        ),
        (
            "_cabi/aggregates.py",
            "c_layout.members != members or c_layout.size != size",
            "c_layout.members != members",
            ABI,
        ),
        (
            "_cabi/aggregates.py",
            'return ctype.is_numba_layout and ctype.python_kind != "record"',
            "return ctype.is_numba_layout",
            ABI,
        ),
        ("_cabi/signatures.py", "_MAX_DIRECT_SIZE = 128", "_MAX_DIRECT_SIZE = 256", "cabi"),
        ("_cabi/signatures.py", "min_align = 4 if", "min_align = 1 if", "cabi"),
        (
            "_cabi/signatures.py",
            "ctype.size * 8 if kernel else max(32, ctype.size * 8)",
            "max(32, ctype.size * 8)",
            "cabi",
        ),
        (
            "_cabi/types.py",
            '"signext" if self.row.kind == "int" else "zeroext"',
            '"zeroext"',
            "numba_cuda/test_wrapper.py",
        ),
        ("_cabi/types.py", "yield from self._padding(member.offset - end)", "yield from ()", "cabi"),
        ("_cabi/types.py", "return View(name, 8 + 16 * ndim,", "return View(name, 8 + 8 * ndim,", "cabi"),
        ("_cabi/names.py", "is None and name not in taken", "is None", "cabi"),
        ("_cabi/header.py", "elif struct.packed:", "elif not struct.packed:", ABI),
        ("_cabi/header.py", '.replace("*/", "* /")', "", ABI),
        ("_cabi/existing.py", '{"int": "uf&", "uint": "if&"}', '{"int": "f&", "uint": "f&"}', "cabi"),
        ("_cabi/launcher.py", 'struct.iter_unpack("<Q"', 'struct.iter_unpack(">Q"', "cabi/test_launcher.py"),
        ("_cabi/signatures.py", 'entry["offset"] = member.offset', 'entry["offset"] = 0', f"{ABI} link"),
        ("abi.py", "readonly=not ty.mutable)", "readonly=False)", ABI),
        ("abi.py", "readonly=not ty.mutable)", "readonly=True)", ABI),
        (
            "_front_end/codegen/wrapper.py",
            'if abi.on_error == "trap":',
            'if abi.on_error != "trap":',
            "numba_cuda/test_error_model.py",
        ),
        (
            "_numba_cuda_mlir/codegen/errors.py",
            "set() if trap else set(raising_names)",
            "set[str]()",
            "numba_cuda numba_cuda_mlir",
        ),
        (
            "_front_end/codegen/convention.py",
            'strides[::-1] if ty.layout == "C" else strides',
            "strides[:]",
            "ptx_machine/test_signatures.py numba_cuda",
        ),
    ],
    "host": [
        ("_cpu/cxx.py", "if name in reachable:", "if name:", HOST),
        ("_cpu/cxx.py", 'content.rstrip(b"\\0")', 'content.strip(b"\\0")', HOST),
        ("_cpu/cxx.py", 'value = text.removeprefix("ret ")', 'value = "void"', INSTRUCTIONS),
        ("_cpu/cxx.py", "else goto {local_name(match[3])}", "else goto {local_name(match[2])}", HOST),
        ("_cpu/cxx_expressions.py", '"false" if text in', '"true" if text in', HOST),
        ("_cpu/cxx_expressions.py", "(1 << 128) - number", "(1 << 64) - number", INSTRUCTIONS),
        ("_cpu/cxx_expressions.py", "set().union(*(part.uses for part in parts))", "set()", HOST),
        ("_cpu/llvm.hpp", "#if defined(__clang__) || !defined(__FP_FAST_FMA)", "#if 1", HOST),
        ("_cpu/llvm.hpp", "op_mul, T, as_wide(a) * as_wide(b)", "op_mul, T, a * b", INSTRUCTIONS),
        ("_cpu/llvm.hpp", "op_fcmp_ult, i1, !(a >= b)", "op_fcmp_ult, i1, a < b", INSTRUCTIONS),
        ("_cpu/llvm.hpp", "op_ashr, T, as_signed(a) >> b", "op_ashr, T, a >> b", INSTRUCTIONS),
        ("_cpu/llvm.hpp", "a >= (F)(high / 2 + 1) * 2 ?", "a > (F)(high / 2 + 1) * 2 ?", INSTRUCTIONS),
        ("_cpu/llvm.hpp", "llvm_roundeven, rint", "llvm_roundeven, round", INSTRUCTIONS),
        (
            "_cpu/llvm.hpp",
            "a ? (unsigned)__builtin_clzll(a) + width<T>() - 64",
            "a ? (unsigned)__builtin_clzll(a)",
            INSTRUCTIONS,
        ),
        ("_cpu/host_source.py", 'if name.startswith("%"):', "if not name:", HOST),
        (
            "_cpu/host_source.py",
            "if callee in _REFUSED_FUNCTIONS:",
            "if callee not in self.functions and not callee:",
            HOST,
        ),
        ("_cpu/host_source.py", "Fault.TRAP, Fault.ASSERT, Fault.ACCESS", "Fault.ASSERT, Fault.ACCESS", HOST),
        ("_cabi/header.py", "device = declaration.host_macro or", "device =", HOST),
        ("_cabi/header.py", 'if declaration.host_macro else "NUMBA', 'if False else "NUMBA', HOST),
        ("_export/host_versions.py", "if function.signature.name in source.names", "if True", HOST),
    ],
    "export": [
        (
            "_export/compile.py",
            "if LTOIR in kinds:",
            "if LTOIR in kinds and linked_files:",
            "test_exporter.py",
        ),
        (
            "_tools/nvvm.py",
            "nvvm.release <= max_release",
            "nvvm.release < max_release",
            "link/test_target_release.py",
        ),
        (
            "_export/compile.py",
            "count > 1 and _SHARED_VARIABLE.search(module)",
            "count > 99 and _SHARED_VARIABLE.search(module)",
            "export/test_jobs.py numba_cuda/test_equal_functions.py",
        ),
        (
            "_export/artifacts.py",
            "if any(kind != LTOIR for kind in kinds):",
            "if all(kind != LTOIR for kind in kinds):",
            "cabi/test_packed_records.py",
        ),
        (
            "_export/choice.py",
            "    if len(uses_by_front_end) > 1:\n",
            "    if len(uses_by_front_end) > 2:\n",
            "export/test_choice.py",
        ),
        (
            "_export/choice.py",
            "if len(functions_by_front_end) > 1:",
            "if len(functions_by_front_end) > 2:",
            "export/test_choice.py",
        ),
        (
            "_export/jobs.py",
            "_environment_digest(loaded, functions) != environment_digest",
            "False",
            "export/test_jobs.py",
        ),
        (
            "_export/marks.py",
            "if code.co_kwonlyargcount or code.co_flags",
            "if code.co_flags",
            "numba_cuda/test_callable_from_c.py",
        ),
        (
            "_export/marks.py",
            "if callers_front_end is not None and self.requested_front_end not in",
            "if callers_front_end is None and self.requested_front_end not in",
            "export/test_choice.py test_exporter.py",
        ),
        (
            "_export/write.py",
            "in real_sources and not outputs.has_content(path, content)",
            "in real_sources and outputs.has_content(path, content)",
            "test_export_files.py",
        ),
        (
            "_export/write.py",
            "manifests.digest(path.read_bytes()) == digest",
            "manifests.digest(path.read_bytes()) != digest",
            "test_export_files.py",
        ),
        (
            "_export/write.py",
            "if signature.kernel else {})",
            "if not signature.kernel else {})",
            "test_exporter.py",
        ),
        (
            "_numba_cuda/stable_names.py",
            "names = {old: new for old, new in _new_names(symbols, digest).items() if old not in stable}",
            "names = _new_names(symbols, digest)",
            "numba_cuda/test_stable_names.py",
        ),
        (
            "_export/signatures.py",
            "if len(names) != len(args):",
            "if len(names) < len(args):",
            "test_exporter.py numba_cuda/test_callable_from_c.py",
        ),
        (
            "_export/signatures.py",
            "with_location(location, error)",
            'with_location("", error)',
            "test_exporter.py",
        ),
        (
            "_export/link_files.py",
            'name.startswith("NRT_") and name not in callers',
            "name in callers",
            "export/test_externs.py",
        ),
        ("_front_end/shims.py", "} & shims.keys()", "} & set()", "numba_cuda/test_plan.py"),
        (
            "_export/load.py",
            "[str(path_front), *sys.path, *path_back]",
            "[*sys.path, str(path_front), *path_back]",
            IMPORTS,
        ),
        ("_export/load.py", "if not _is_of_user(path):", "if _is_of_user(path):", IMPORTS),
        (
            "_export/load.py",
            "_existing_files((*_module_files(new_modules), *data_files))",
            "_existing_files(_module_files(new_modules))",
            IMPORTS,
        ),
        ("_export/children.py", "os.environ.update(environment)", "pass", IMPORTS),
    ],
    "front ends": [
        (
            "_numba_cuda/patches/first_kernel.py",
            "if linker.lto and not linker.additional_flags:",
            "if linker.lto:",
            "numba_cuda/test_plan.py",
        ),
        (
            "_numba_cuda/linker.py",
            "lineinfo=not debug and (self.lineinfo or lineinfo),",
            "lineinfo=self.lineinfo,",
            "numba_cuda/test_debug.py",
        ),
        (
            "_numba_cuda/linker.py",
            "lineinfo |= any(map(llvm_ir.has_line_numbers, self._ltoir_modules))",
            "pass",
            "numba_cuda/test_debug.py",
        ),
        (
            "_front_end/disk_keys.py",
            "    return unchanged\n",
            "    return True\n",
            "numba_cuda/test_disk_cache.py",
        ),
        (
            "_numba_cuda_mlir/patches/disk_cache.py",
            "return is_complete and",
            "return",
            "numba_cuda_mlir/test_mlir_disk_cache.py",
        ),
        (
            "_numba_cuda/patches/driverless.py",
            "notes(existing.library).variant != (cc, checked)",
            "notes(existing.library).variant[0] != cc",
            "numba_cuda/test_error_model.py",
        ),
        (
            "_numba_cuda/patches/driverless.py",
            "return original() if cc is None else",
            "return original() if cc else",
            "numba_cuda/test_helpers_again.py numba_cuda/test_recursion.py",
        ),
        ("_front_end/nvvm_unit.py", '"flags": options,', '"flags": [],', "numba_cuda/test_plan.py"),
        (
            "_numba_cuda/patches/c_abi.py",
            "get_data_type() != model.get_value_type()",
            "get_data_type() == model.get_value_type()",
            "numba_cuda/test_pointers.py",
        ),
        (
            "_numba_cuda/modules.py",
            r'return [_VISIBLE_VARIABLE.sub(r"\1internal ", text) for text in texts]',
            "return list(texts)",
            "numba_cuda/test_recursion.py",
        ),
        (
            "_numba_cuda_mlir/codegen/convention.py",
            "element.length == 3:",
            "element.length == 4:",
            "numba_cuda_mlir/test_mlir_layouts.py",
        ),
        (
            "_numba_cuda_mlir/codegen/repairs.py",
            r'_DYNAMIC_SHARED.sub(r"\1external \2", text))',
            "text)",
            "numba_cuda_mlir/test_mlir_exports.py",
        ),
        (
            "_front_end/disk_keys.py",
            "    if lookup is None:\n        return False\n",
            "    if lookup is None:\n        return True\n",
            "numba_cuda_mlir/test_mlir_disk_cache.py",
        ),
        (
            "_numba_cuda_mlir/patches/first_kernel.py",
            "or _prints_results(options) or",
            "or",
            "numba_cuda_mlir/test_mlir_back_end.py",
        ),
        (
            "_numba_cuda_mlir/linker.py",
            "if exported and config().checks",
            "if not exported and config().checks",
            "link/test_declarations.py",
        ),
        ("_front_end/activation.py", "if row.module == module and row not", "if row not", ACTIVE),
        (
            "_front_end/activation.py",
            "if trigger_module not in self.reported and not _is_loaded(trigger_module):",
            "if trigger_module not in self.reported:",
            ACTIVE,
        ),
        ("_front_end/patch.py", "        if record.uses:\n            return\n", "", ACTIVE),
        (
            "_front_end/disk_keys.py",
            "if is_source:",
            "if not is_source:",
            "numba_cuda_mlir/test_mlir_disk_cache.py",
        ),
        ("_plugin.py", "if len(refused) >= len(installed):", "if len(refused) > len(installed):", ACTIVE),
    ],
    "CPU": [
        ("_cpu/memory.py", "<= storage.size - size:", "<= storage.size:", "cpu/test_cpu_faults.py"),
        (
            "_cpu/run.py",
            "ready = dict.fromkeys(yielded, Resume.YIELD)",
            "ready, at_grid_barrier = dict.fromkeys(yielded, Resume.YIELD), []",
            CPU_PROGRAMS,
        ),
        (
            "_cpu/run.py",
            "dict.fromkeys(yielded, Resume.YIELD)",
            "dict.fromkeys(at_grid_barrier, Resume.GRID_BARRIER) | dict.fromkeys(yielded, Resume.YIELD)",
            CPU_PROGRAMS,
        ),
        (
            "_cpu/memory.py",
            "is_reported = not _is_thread_private(",
            "is_reported = _is_thread_private(",
            "cpu/test_cpu_checks.py",
        ),
        ("_cpu/checks.py", "if key not in reported:", "if True:", "cpu/test_cpu_checks.py"),
        (
            "_cpu/checks.py",
            "elif report.thread // _WARP_SIZE == report",
            "elif report.thread // _WARP_SIZE != report",
            "cpu/test_cpu_checks.py",
        ),
        ("_cpu/call_graph.py", "self.suspending.update(new)", "pass", CPU_PROGRAMS),
        ("_cpu/symbols.py", "+ index * _FUNCTION_DISTANCE", "+ _FUNCTION_DISTANCE", CPU_PROGRAMS),
        (
            "_cpu/nan_bits.py",
            "register_origins[target] = register_origins.get(target, Origin.NONE) | origin",
            "register_origins[target] = origin",
            CPU_PROGRAMS,
        ),
        (
            "_cpu/instructions.py",
            'values[1] = b.emit_op("xor", f"i{ptx_type.bits}", values[1], -1)',
            "pass",
            CPU_PROGRAMS,
        ),
        (
            "_cpu/warps.py",
            "icmp {'sge' if mode == 'up' else 'sle'}",
            "icmp {'sgt' if mode == 'up' else 'sle'}",
            f"cpu/test_cpu_instructions.py {CPU_PROGRAMS}",
        ),
        ("_cpu/async_copies.py", '"icmp uge", "i32", count, size', '"icmp ugt", "i32", size, count', ASYNC),
        ("_cpu/async_copies.py", 'drops=operation == "arrive_drop"', "drops=False", ASYNC),
        (
            "_cpu/matrices.py",
            "for row in range(product.lane_rows):",
            "for row in range(1):",
            "cpu/test_cpu_matrices.py",
        ),
    ],
    "cache": [
        ("cache/directory.py", "0o600 | (self._others_mode & _OTHERS_READ)", "0o644", "cache"),
        ("cache/directory.py", "if status.st_mode & _OTHERS_WRITE:", "if False:", "cache"),
        ("cache/directory.py", "if not base.is_absolute():", "if base.is_absolute():", "cache"),
        ("cache/directory.py", "                os.utime(file)", "                pass", "cache"),
        ("cache/directory.py", "> _ABANDONED_SECONDS", "< _ABANDONED_SECONDS", "cache"),
        ("cache/directory.py", "elif total > self.max_size:", "elif total < self.max_size:", "cache"),
        ("cache/key.py", "_hash_part(key_hash, label.encode(),", '_hash_part(key_hash, b"",', "cache"),
        (
            "cache/key.py",
            '_hash_part(part_hash, b"each", _to_bytes(element))',
            "part_hash.update(_to_bytes(element))",
            "cache",
        ),
        ("cache/key.py", "digest = source_digest(Path(__file__).parents[1])", 'digest = ""', "cache"),
        ("cache/key.py", "if _digest(stored_address, body) != digest:", "if False:", "cache"),
        ("cache/key.py", "if not hmac.compare_digest(expected_tag, tag):", "if False:", "cache"),
        ("cache/key.py", "!= (MAGIC, address, len(body))", "!= (MAGIC, stored_address, len(body))", "cache"),
        ("cache/tiered.py", "stored = writable is not None and", "stored = writable is None and", "cache"),
        (
            "cache/tiered.py",
            "if self._server is None or (sealed",
            "if self._server is not None or (sealed",
            "cache",
        ),
        (
            "cache/tiered.py",
            "                directory.discard(address)\n",
            "                pass\n",
            "cache",
        ),
        ("cache/tiered.py", "    if settings.cache_secret is None:", "    if False:", "cache"),
        ("cache/server.py", "+ PAUSE_SECONDS", "", "cache"),
        (
            "cache/server.py",
            "if len(sealed) > MAX_ENTRY_BYTES:",
            "if len(sealed) < MAX_ENTRY_BYTES:",
            "cache",
        ),
        ("cache/single_flight.py", "in (errno.EACCES, errno.EAGAIN)", "in ()", "cache"),
        (
            "cache/single_flight.py",
            "if flight.ended.wait(WAIT_SECONDS) and flight",
            "if flight.ended.wait(WAIT_SECONDS) or flight",
            "cache",
        ),
    ],
}


def main() -> int:
    """Run the tests on each mutant; print the results, and return 1 if less than 95 % are caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--only", choices=MUTANTS, help="the mutants of one area")
    parser.add_argument("--numbers", type=int, nargs="+", help="those with these numbers in each area")
    args = parser.parse_args()
    caught = [
        _run(f"{area} {number}", mutant)
        for area, mutants in MUTANTS.items()
        for number, mutant in enumerate(mutants)
        if args.only in (None, area) and (args.numbers is None or number in args.numbers)
    ]
    print(f"{sum(caught)} of {len(caught)} are caught")
    return int(sum(caught) < 0.95 * len(caught))


def _run(title: str, mutant: tuple[str, str, str, str]) -> bool:
    """Return whether a test of the mutant fails in processes whose package it is."""
    file, old, new, tests = mutant
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "numba_ptxlink")
        shutil.copytree(ROOT / "numba_ptxlink", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(find_spec("numba_ptxlink._native._nvptxcompiler").origin, package / "_native")
        Path(folder, "sitecustomize.py").write_text(SITE)
        text = (package / file).read_text()
        assert 1 == text.count(old), f"{file} has {old!r} {text.count(old)} times"
        (package / file).write_text(text.replace(old, new))
        paths = [word if word.startswith("-") else f"tests/{word}" for word in tests.split()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *paths]
        environ = {**os.environ, "PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
        # A test compares edited files with the byte code of others.
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=600
            )
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            status, output = 1, "FAILED by its time"
    first = next((line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    print(f"{title}: {'caught' if status else 'MISSED'}  {file}  {first:.120}", flush=True)
    return bool(status)


if __name__ == "__main__":
    sys.exit(main())
