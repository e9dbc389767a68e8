"""
Run functions in children of a process that has imported a compiler and nothing else.

A Python file that is exported is imported in such a child: whatever it imports, and wherever that comes from,
stays there, and an edited module is read again. The process is started once for each environment; to fork a
child of it takes a hundredth of the time.

A child has the working directory, environment, `sys.path` and options (`-O`) of its caller, whose standard
error is its standard output, too. What it logs is logged by the caller.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from logging.handlers import QueueHandler
from multiprocessing import spawn, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import _config, cache
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import ExportError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
_LOGGER = "numba_ptxlink"
_STANDARD_ERROR = 2
# What compilers and the interpreter read while they are imported.
_READ_EARLY = ("NUMBA", "PYTHON", "CUDA", "LD_")
_START = """\
import sys
sys.path[:] = {path!r}
from numba_ptxlink._export.children import _serve
_serve({descriptor})
"""


class _Server:
    """
    The process that forks children; it ends, and they with it, when this process does.

    Args:
        prepare: What it does first, as a pickled function and its arguments.
    """

    def __init__(self, prepare: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            start = _START.format(path=[*filter(None, sys.path), str(_ROOT)], descriptor=theirs.fileno())
            # Ctrl-C is for this process, which ends the children that it waits for.
            flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as its children
            self._process = subprocess.Popen(  # noqa: S603 - Python itself
                # The one that programs with an interpreter within them name.
                [spawn.get_executable(), *flags, "-c", start],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        connection = Connection(os.dup(self._socket.fileno()))
        with connection:
            connection.send_bytes(prepare)

    def fork(self) -> Connection:
        """
        Return what is connected to a new child.

        Raises:
            OSError: The process has ended.
        """
        ours, theirs = multiprocessing.Pipe()
        # What has the number of a closed stream is something else.
        number = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else os.dup(_STANDARD_ERROR)
        with theirs, os.fdopen(number, "wb") as error:
            socket.send_fds(self._socket, [b"f"], [theirs.fileno(), error.fileno()])
        return ours

    def end(self) -> None:
        """End the process and its children."""
        self._socket.close()
        self._process.wait()


# The key has the process id: a forked child finds the servers of its parent here, and starts its own. When it
# ends, it closes its copies of the sockets, and the parent's servers go on.
_servers: dict[Any, _Server] = {}
_lock = Lock()


def run(
    function: Callable[..., Any],
    *args: Any,
    prepare: tuple[Any, ...],
) -> Any:
    """
    Return what *function*, which a module has by its name, returns for *args* in a child.

    Args:
        function: The function.
        args: Its arguments, which travel as a pickle.
        prepare: A function with its arguments that the process calls, of which the child is one.

    Raises:
        ExportError: The child has died.
        Exception: What *function* raised.
    """
    _open_standard_streams()
    connection = _forked(prepare)
    level = logging.getLogger(_LOGGER).getEffectiveLevel()
    try:
        with connection:
            connection.send((dict(os.environ), os.getcwd(), sys.path, level, function, args))  # noqa: PTH109
            while True:
                what, value = connection.recv()
                if what == "logged":
                    logging.getLogger(value.name).handle(value)
                elif what == "failed":
                    raise value
                else:
                    return value
    except (EOFError, ConnectionError):
        raise ExportError(
            "The process that imports and compiles the functions has died; what it wrote to its standard "
            "error, and `python -X faulthandler` with the file, may show the cause."
        ) from None


def _open_standard_streams() -> None:
    """
    Open the null device for standard input, output and error where these are closed.

    The next file or socket would be opened in their place, and get what anything prints.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _forked(prepare: tuple[Any, ...]) -> Connection:
    early = {name: value for name, value in os.environ.items() if name.startswith(_READ_EARLY)}
    begin = pickle.dumps(prepare)
    key = (os.getpid(), begin, *sorted(early.items()))
    with _lock.held:
        for _ in range(2):
            if key not in _servers:
                _servers[key] = _Server(begin)
            try:
                return _servers[key].fork()
            except OSError:
                # It was killed.
                _servers.pop(key).end()
    raise ExportError("No process can be started that imports the functions; see its standard error.")


@atexit.register
def end() -> None:
    """End the processes that fork children."""
    while _servers:
        _servers.popitem()[1].end()


def _serve(descriptor: int) -> None:
    """Fork a child for each message on the socket *descriptor*; end with its other side."""
    _open_standard_streams()
    control = socket.socket(fileno=descriptor)
    with Connection(os.dup(descriptor)) as connection:
        function, *args = pickle.loads(connection.recv_bytes())  # noqa: S301 - of the process that has started this
    # What is imported lives as long as the process: neither it nor a child looks for garbage there.
    gc.disable()
    # A child imports it again, and tells why not.
    with contextlib.suppress(Exception):
        function(*args)
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Threads that a compiler has started, such as NumPy's, know how to be forked.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            os.killpg(0, signal.SIGKILL)
        if os.fork() == 0:
            control.close()
            _be_child(*descriptors)
        for each in descriptors:
            os.close(each)


def _be_child(descriptor: int, error: int) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(error, 1)
        os.dup2(error, 2)
        connection: Any = Connection(descriptor)
        environment, folder, path, level, function, args = connection.recv()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:] = path
        _config.config.cache_clear()
        cache.default.cache_clear()
        logger = logging.getLogger(_LOGGER)
        logger.handlers, logger.propagate = [_Forwarding(connection)], False
        logger.setLevel(level)
        connection.send(_outcome(function, args))
    finally:
        os._exit(0)


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "returned", function(*args)
    except (PtxlinkError, KeyboardInterrupt) as error:
        log.info("%s", traceback.format_exc())
        return "failed", error
    except BaseException:  # noqa: BLE001 - the caller raises it, and other exceptions may refuse to be pickled
        return "failed", RuntimeError(traceback.format_exc())
    finally:
        # Before the caller has the result, which may end, and this process with it.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


class _Forwarding(QueueHandler):
    """Sends what is logged to the caller, by a connection in the place of a queue."""

    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(("logged", record))
