"""
Execute PTX: kernels, and functions.

The lanes of a block run together. Those at the same place of the same call execute it at once; where they are
apart, those of the deepest call go first, and of them those at the lowest place, so that lanes meet again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .memory import CODE, GLOBAL, RAW, Space, lanes_of
from .parse import Function, Module, PtxError, Symbol, Variable, number, parse, width
from .steps import Maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DEEPEST = 500


class Machine:
    """
    Modules that are linked by name, and global memory.

    Args:
        texts: The modules, as text or as `parse` returns them; of those no two machines are in use at a time.
        fill: What registers and memory are that nothing was stored to: 0, or 255 in each byte.
        poison: Whether undefined bits are followed as ptxas treats them, which drops a mask over a register
            that nothing has written on this path: an undefined bit of a register makes all of a word of 32
            bits undefined that is computed from it, and memory that nothing was stored to has some value.
            Otherwise they may be computed with and stored; an address, a predicate and an operand of an
            operation of several lanes must not have any.
        limit: How many instructions a block may execute.
    """

    def __init__(
        self, *texts: str | Module, fill: int = 0, poison: bool = False, limit: int = 1_000_000
    ) -> None:
        self.fill, self.poison, self.limit = fill, poison, limit
        self.special = specials((1, 1, 1), (1, 1, 1), (0, 0, 0), 0)
        self._memory = Space("global", fill, GLOBAL, frozen=poison)
        self._modules = [parse(text) if isinstance(text, str) else text for text in texts]
        self.steps: dict[Function, tuple[Maker, list]] = {}
        self._functions = [function for module in self._modules for function in module.functions.values()]
        self._visible: dict[str, tuple[Module, Function | Variable]] = {}
        for strong in (True, False):
            for module in self._modules:
                for name in (*module.functions, *module.variables, *module.aliases):
                    self._offer(name, module, strong=strong)
        variables = [(module, variable) for module in self._modules for variable in module.variables.values()]
        self._assign_addresses([variable for _, variable in variables])
        for module, variable in variables:
            if variable.values:
                self._memory.poke(variable.address, self._initial(variable, module))

    def _offer(self, name: str, module: Module, *, strong: bool) -> None:
        """Make the symbol *name* of *module* visible to other modules, if it is defined and not private."""
        symbol = module.find(name)
        if symbol and defines(symbol) and symbol.linkage and strong == (symbol.linkage == "visible"):
            first, _ = self._visible.setdefault(name, (module, symbol))
            if strong and first is not module:
                raise PtxError(f"two modules define {name}")

    def function(self, name: str, module: Module | None = None) -> Function:
        """Return the function that *name* is in *module*, or to all."""
        function = self._find(name, module)
        if not isinstance(function, Function) or function.code is None:
            raise PtxError(f"no function {name}")
        return function

    def _find(self, name: str, module: Module | None) -> Function | Variable | None:
        local = module.find(name) if module else None
        if local and defines(local) and local.linkage in ("", "visible"):
            return local
        return self._visible.get(name, (module, local))[1]

    def address(self, symbol: Variable | Symbol, module: Module | None = None) -> int:
        """Return the address of a variable in its state space, or of a function."""
        definition = symbol if isinstance(symbol, Variable) else self._find(symbol.name, module)
        if isinstance(definition, Function) and definition.code is not None:
            return CODE + 16 * self._functions.index(definition)
        if not isinstance(definition, Variable) or definition.address < 0:
            raise PtxError(f"no variable {symbol.name}")
        return definition.address

    def variable(self, name: str) -> int:
        """Return the address of a variable that all modules see."""
        return self.address(Symbol(name))

    def function_at(self, address: int) -> Function:
        """Return the function at *address*."""
        index, offset = divmod(address - CODE, 16)
        if offset or not 0 <= index < len(self._functions):
            raise PtxError(f"no function at {address:#x}")
        return self._functions[index]

    def _assign_addresses(self, variables: list[Variable]) -> None:
        """Assign addresses; variables whose size comes from the launch are last, and share one address."""
        self.shared = [
            variable
            for variable in variables
            if variable.space == "shared" and not (variable.size and variable.linkage == "extern")
        ]
        top = 1024
        for variable in sorted(self.shared, key=lambda variable: not variable.size):
            variable.address = -(-top // 1024) * 1024
            top = variable.address + variable.size + bool(variable.size)
        for variable in variables:
            if variable.linkage != "extern" and variable.space != "shared":
                variable.address = self._memory.allocate(variable.size)
                self._memory.poke(variable.address, bytes(variable.size))

    def _initial(self, variable: Variable, module: Module) -> bytes:
        size, content = width(variable.type) // 8, b""
        for text in variable.values:
            constant = number(text)
            if constant:
                value = constant.value
            else:
                name, _, offset = text.removeprefix("generic(").replace(")", "").partition("+")
                value = self.address(Symbol(name), module) + number(offset or "0").value
            content += (value % (1 << (8 * size))).to_bytes(size, "little")
        return content

    def array(self, values: np.ndarray | int) -> int:
        """Return the address in global memory of a copy of an array, or of undefined bytes."""
        if isinstance(values, int):
            return self._memory.allocate(values)
        address = self._memory.allocate(values.nbytes)
        self._memory.poke(address, values.tobytes())
        return address

    def read(self, address: int, count: int, dtype: object = np.uint8) -> np.ndarray:
        """Return an array out of global memory."""
        return self._memory.peek(address, count * np.dtype(dtype).itemsize)[0].view(dtype)

    def defined(self, address: int, size: int) -> np.ndarray:
        """Return which bits of each byte in global memory are defined."""
        return self._memory.peek(address, size)[1]

    def launch(self, name: str, grid: object, block: object, args: Sequence, shared: int = 0) -> None:
        """
        Launch a kernel.

        Args:
            name: Its name.
            grid: How many blocks, one to three numbers.
            block: How many lanes, likewise.
            args: Values of NumPy, bytes, or integers for addresses.
            shared: Bytes of dynamic shared memory.
        """
        function, grid, block = self.function(name), three(grid), three(block)
        rows = [
            np.frombuffer(arg.to_bytes(8, "little") if isinstance(arg, int) else arg, np.uint8)
            for arg in args
        ]
        for index in np.ndindex(grid[::-1]):
            Block(self, grid, block, index[::-1], shared).run(function, rows)

    def call(self, name: str, *args: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """
        Call a function in as many lanes as the arguments have rows.

        Returns:
            For each result, a row of bytes for each lane, and which of their bits are defined.
        """
        lanes = max((len(arg) for arg in args), default=1)
        rows = [np.ascontiguousarray(arg).view(np.uint8).reshape(len(arg), -1) for arg in args]
        block = Block(self, (1, 1, 1), (lanes, 1, 1), (0, 0, 0), 0)
        return block.run(self.function(name), rows)


class Block:
    """A block of lanes: their memory and their calls."""

    def __init__(self, machine: Machine, grid: tuple, block: tuple, index: tuple, shared: int) -> None:
        self.machine, self.lanes = machine, int(np.prod(block))
        self.special = specials(grid, block, index, shared)
        self.spaces = {
            "global": machine._memory,
            "shared": Space("shared", machine.fill, frozen=machine.poison),
            "local": Space("local", machine.fill, lanes=self.lanes, frozen=machine.poison),
        }
        for variable in machine.shared:
            self.spaces["shared"].acquire(slice(None), variable.address, variable.size or shared)
        self.live = np.ones(self.lanes, bool)
        self.frames: list[Frame] = []
        self.results: list[tuple[np.ndarray, np.ndarray]] = []
        self.executed = 0
        self._waiting: list[tuple] = []

    def run(self, function: Function, args: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Execute *function* and return its results."""
        frame = Frame(self, function, self.live.copy())
        if [arg.shape[-1] for arg in args] != [param.size for param in function.params]:
            raise PtxError(f"{function.name} has other parameters")
        for variable, rows in zip(function.params, args, strict=True):
            for lane, row in enumerate(np.broadcast_to(rows, (self.lanes, variable.size))):
                self.spaces["local"].poke(frame.base + variable.address, row.tobytes(), lane)
        self.results = [
            tuple(np.zeros((self.lanes, result.size), np.uint8) for _ in range(2))
            for result in function.results
        ]
        with np.errstate(all="ignore"):
            while np.count_nonzero(self.live):
                ready = [frame for frame in self.frames if frame.ready]
                if ready:
                    max(ready, key=lambda frame: frame.depth).run()
                elif not self._release():
                    raise PtxError("lanes wait for others that do not come")
        return self.results

    def wait(self, key: tuple[int, int], frame: Frame, index: int, mask: np.ndarray) -> bool:
        """Let lanes wait at a barrier: its number, and how many lanes it is for, 0 for all."""
        self._waiting.append((key, frame, index, mask))
        return True

    def _release(self) -> bool:
        """Let lanes go on that have waited long enough; return whether there are any."""
        for key in {entry[0] for entry in self._waiting}:
            arrived = [entry for entry in self._waiting if entry[0] == key]
            if sum(np.count_nonzero(mask) for *_, mask in arrived) < (key[1] or np.count_nonzero(self.live)):
                continue
            self._waiting = [entry for entry in self._waiting if entry[0] != key]
            for _, frame, index, mask in arrived:
                frame.join(index, mask)
            return True
        # An operation of a warp does not wait for lanes that have ended since.
        return bool([frame for frame in self.frames if frame.unpark(np.count_nonzero(self.live))])


class Frame:
    """
    A call of a function by some lanes: their registers, and the instruction that each is at.

    Args:
        block: The block.
        function: The function.
        mask: The lanes.
        caller: The frame that called this one, None for a kernel.
        return_index: The instruction of *caller* at which they continue.
        results: Its variables that take the results.
    """

    def __init__(
        self,
        block: Block,
        function: Function,
        mask: np.ndarray,
        *,
        caller: Frame | None = None,
        return_index: int = 0,
        results: Sequence[Variable] = (),
    ) -> None:
        self.block, self.function, self.mask = block, function, mask
        self.caller, self._return_index, self._results = caller, return_index, results
        self.depth = caller.depth + 1 if caller else 0
        if self.depth > _DEEPEST:
            raise PtxError("a recursion that does not end")
        top = caller.base + caller.function.size if caller else 256
        alignment = max((variable.alignment for variable in function.frame), default=1)
        self.base = -(-top // max(alignment, 256)) * max(alignment, 256)
        self.ready = {0: mask}
        self._parked: dict[int, np.ndarray] = {}
        self._live = -1
        if function not in block.machine.steps:
            block.machine.steps[function] = Maker(block.machine, function), [None] * len(function.code)
        raws = [RAW[width(kind)] for kind in function.registers]
        fill = bool(block.machine.fill)
        filled = {raw: np.full(mask.size, ~raw(0) if fill else raw(0), raw) for raw in set(raws)}
        self.values = [filled[raw].copy() for raw in raws]
        ones = {raw: np.where(mask, ~raw(0), raw(0)) for raw in filled}
        self.undefined = [ones[raw] for raw in raws]
        block.frames.append(self)
        local, lanes = block.spaces["local"], lanes_of(mask)
        for variable in function.frame:
            local.acquire(lanes, self.base + variable.address, variable.size)

    def run(self) -> None:
        """Execute until another frame comes first, or no lane of this one is ready."""
        function, block = self.function, self.block
        frames, machine, code = block.frames, block.machine, function.code
        maker, steps = machine.steps[function]
        depth = len(frames)
        while self.ready and len(frames) == depth:
            index = min(self.ready)
            mask = self.ready.pop(index)
            if np.count_nonzero(mask) == np.count_nonzero(self.mask):
                # By this `Maker.writer` knows that all lanes of the call write.
                mask = self.mask
            next_ready = min(self.ready, default=len(code) + 1)
            while True:
                if index == len(code):
                    self.leave(mask)
                    break
                block.executed += 1
                if block.executed > machine.limit:
                    raise PtxError(f"{function.name} executes more than {machine.limit} instructions")
                try:
                    if steps[index] is None:
                        steps[index] = maker.step(index)
                    has_left = steps[index](self, mask)
                except PtxError as error:
                    if "\n" in str(error):
                        raise
                    raise PtxError(f"{error}\n  in {function.name}: {code[index].text}") from error
                if has_left:
                    break
                index += 1
                if index >= next_ready:
                    self.join(index, mask)
                    break

    def join(self, index: int, mask: np.ndarray) -> bool:
        """Let lanes go on at *index*, with those that are there."""
        if np.count_nonzero(mask):
            mask = self.gathered(index, mask)
            self.ready[index] = mask | self.ready[index] if index in self.ready else mask
        return True

    def gathered(self, index: int, mask: np.ndarray) -> np.ndarray:
        """Return lanes with those that wait at *index*."""
        return mask | self._parked.pop(index) if index in self._parked else mask

    def park(self, index: int, mask: np.ndarray) -> bool:
        """Let lanes wait at *index* for others to come there."""
        self._parked[index] = mask
        self._live = np.count_nonzero(self.block.live)
        return True

    def unpark(self, live: int) -> bool:
        """Let lanes look again, if others have ended since they were parked."""
        again = bool(self._parked) and live != self._live
        if again:
            self.ready |= self._parked
            self._parked = {}
        return again

    def call(
        self, function: Function, mask: np.ndarray, return_index: int, results: list, arguments: list
    ) -> bool:
        """Let lanes call *function*, and go on at *return_index* after it."""
        passed, expected = (*results, *arguments), (*function.results, *function.params)
        if [variable.size for variable in passed] != [variable.size for variable in expected]:
            raise PtxError(f"{function.name} is called with other parameters than it has")
        frame = Frame(self.block, function, mask, caller=self, return_index=return_index, results=results)
        local, lanes = self.block.spaces["local"], lanes_of(mask)
        for argument, formal in zip(arguments, function.params, strict=True):
            local.copy(lanes, self.base + argument.address, frame.base + formal.address, formal.size)
        return True

    def leave(self, mask: np.ndarray) -> bool:
        """Let lanes return, or end."""
        block, lanes = self.block, lanes_of(mask)
        local = block.spaces["local"]
        if self.caller:
            for target, result in zip(self._results, self.function.results, strict=True):
                local.copy(lanes, self.base + result.address, self.caller.base + target.address, result.size)
            self.caller.join(self._return_index, mask)
        else:
            for result_bytes, result in zip(block.results, self.function.results, strict=True):
                for lane in np.flatnonzero(mask):
                    result_bytes[0][lane], result_bytes[1][lane] = local.peek(
                        self.base + result.address, result.size, lane
                    )
            block.live &= ~mask
        self.mask = self.mask & ~mask
        for variable in self.function.frame:
            local.release(lanes, self.base + variable.address, variable.size)
        if not np.count_nonzero(self.mask):
            block.frames.remove(self)
        return True


def defines(symbol: Function | Variable) -> bool:
    """Return whether *symbol* is a definition."""
    return symbol.code is not None if isinstance(symbol, Function) else symbol.linkage != "extern"


def three(size: int | Iterable[int]) -> tuple[int, int, int]:
    """Return a size in three dimensions."""
    return (*((size,) if isinstance(size, int) else size), 1, 1)[:3]


def specials(grid: tuple, block: tuple, index: tuple, shared: int) -> dict[str, np.ndarray]:
    """Return the special registers of a block."""
    lanes = np.arange(np.prod(block), dtype=np.uint32)
    single = {"%nwarpid": -(-lanes.size // 32), "%dynamic_smem_size": shared, "%clock": 0, "%clock64": 0}
    registers = {"%laneid": lanes % 32, "%warpid": lanes // 32}
    tid = (lanes % block[0], lanes // block[0] % block[1], lanes // (block[0] * block[1]))
    for axis, letter in enumerate("xyz"):
        registers[f"%tid.{letter}"] = tid[axis]
        single[f"%ntid.{letter}"], single[f"%nctaid.{letter}"] = block[axis], grid[axis]
        single[f"%ctaid.{letter}"] = index[axis]
    registers |= {name: np.array([value]) for name, value in single.items()}
    return {name: value.astype(np.uint32) for name, value in registers.items()}
