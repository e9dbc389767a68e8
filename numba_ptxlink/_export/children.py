"""
Run functions in children of a process that has imported a compiler and nothing else.

An exported Python file is imported in such a child, so that its modules do not stay in the caller's process,
and an edited module is read again. A server process forks the children, since a fork takes a hundredth of the
time of starting Python; there is one server for each set of environment variables that compilers read.

A child has the working directory, environment, `sys.path` and options (`-O`) of its caller. The child
writes its standard output and error to the caller's standard error, and sends log records and progress to
the caller.
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

from . import progress

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_LOGGER_NAME = "numba_ptxlink"
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
# The interpreter reads variables with these prefixes when it starts, and compilers when they are imported.
_PREFIXES_READ_EARLY = ("NUMBA", "PYTHON", "CUDA", "LD_")
_START_CODE = """\
import sys
sys.path[:] = {path!r}
from numba_ptxlink._export.children import _serve
_serve({descriptor})
"""


class _Server:
    """
    The process that forks children. The server and its children end with this process.

    Args:
        pickled_prepare: A function and its arguments, pickled; the server calls it first.
    """

    def __init__(self, pickled_prepare: bytes) -> None:
        self._socket, server_end = socket.socketpair()
        with server_end:
            # Leave out "", the working directory: it differs between this process, the server and the
            # children.
            start_code = _START_CODE.format(
                path=[*filter(None, sys.path), str(_PACKAGE_PARENT)], descriptor=server_end.fileno()
            )
            # In a new session, since Ctrl-C is to interrupt this process only, which then ends its children.
            interpreter_flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
            self._process = subprocess.Popen(  # noqa: S603 - Python itself
                # Programs that embed Python set the executable, by multiprocessing.set_executable.
                [spawn.get_executable(), *interpreter_flags, "-c", start_code],
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # A child changes to the folder of its caller.
                cwd="/",
            )
        connection = Connection(os.dup(self._socket.fileno()))
        with connection:
            connection.send_bytes(pickled_prepare)

    def fork(self) -> Connection:
        """
        Return the connection to a new child.

        Raises:
            OSError: The server has ended.
        """
        caller_end, child_end = multiprocessing.Pipe()
        # If standard error is closed, its descriptor may belong to another file.
        descriptor = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else os.dup(_STANDARD_ERROR)
        with child_end, os.fdopen(descriptor, "wb") as error_stream:
            # Any message of one byte: descriptors cannot be sent without one.
            socket.send_fds(self._socket, [b"f"], [child_end.fileno(), error_stream.fileno()])
        return caller_end

    def end(self) -> None:
        """End the server and its children."""
        self._socket.close()
        self._process.wait()


# The key contains the process id: a process that the caller forks inherits this table, but has to start
# servers of its own. When it ends, it closes only its copies of the sockets, so that the servers of its
# parent continue.
_servers: dict[Any, _Server] = {}
_lock = Lock()


def run(
    function: Callable[..., Any],
    *args: Any,
    prepare: tuple[Any, ...],
) -> Any:
    """
    Call *function* in a child, and return its result.

    Args:
        function: A function of a module, as pickle requires.
        args: The arguments, which are sent as a pickle.
        prepare: A function followed by its arguments; the server calls it before it forks children.

    Raises:
        ConfigError: The working directory was removed.
        ExportError: The child has died.
        Exception: The exception that *function* raised.
    """
    _open_standard_streams()
    folder = _config.working_directory()
    connection = _fork_child(prepare)
    level = logging.getLogger(_LOGGER_NAME).getEffectiveLevel()
    try:
        with connection:
            connection.send((dict(os.environ), folder, sys.path, level, function, args))
            while True:
                event, value = connection.recv()
                if event == "logged":
                    logging.getLogger(value.name).handle(value)
                elif event == "began":
                    progress.step(*value)
                elif event == "failed":
                    raise value
                else:
                    return value
    except (EOFError, ConnectionError):
        raise ExportError(
            "The process that imports and compiles the functions has died; see its standard error, or "
            "run the file with `python -X faulthandler`."
        ) from None


def _open_standard_streams() -> None:
    """
    Open the null device as standard input, output and error if these are closed.

    Otherwise the next file or socket would get the number of a closed stream, and receive all printed text.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _fork_child(prepare: tuple[Any, ...]) -> Connection:
    """Return the connection to a child of the server for *prepare*, which is started if necessary."""
    early_variables = {
        name: value for name, value in os.environ.items() if name.startswith(_PREFIXES_READ_EARLY)
    }
    pickled_prepare = pickle.dumps(prepare)
    key = (os.getpid(), pickled_prepare, *sorted(early_variables.items()))
    with _lock.held:
        for _ in range(2):
            if key not in _servers:
                _servers[key] = _Server(pickled_prepare)
            try:
                return _servers[key].fork()
            except OSError:
                # The server was killed: start another.
                _servers.pop(key).end()
    raise ExportError("No process can be started that imports the functions; see its standard error.")


@atexit.register
def end() -> None:
    """End the processes that fork children."""
    while _servers:
        _servers.popitem()[1].end()


def _serve(descriptor: int) -> None:
    """Fork a child for each message on the socket *descriptor*; end when the other side closes it."""
    _open_standard_streams()
    # The caller has logged the warnings about environment variables already.
    logging.getLogger(_config.__name__).setLevel(logging.ERROR)
    control = socket.socket(fileno=descriptor)
    with Connection(os.dup(descriptor)) as connection:
        function, *args = pickle.loads(connection.recv_bytes())  # noqa: S301 - sent by the process that has started this one
    # Imported modules live as long as the process: collect no garbage while they are imported, and exclude
    # them from collections in children, by `gc.freeze`.
    gc.disable()
    # If this fails, a child imports the compiler again, and reports the error.
    with contextlib.suppress(Exception):
        function(*args)
    gc.freeze()
    gc.enable()
    # With this signal ignored, the operating system removes children that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Python warns of forks beside threads, but libraries that start threads, such as NumPy, support forks.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, bufsize=1, maxfds=2)
        if not message:
            # The caller has closed its side: end this process and the children.
            os.killpg(0, signal.SIGKILL)
        if os.fork() == 0:
            control.close()
            _run_child(*descriptors)
        for received_descriptor in descriptors:
            os.close(received_descriptor)


def _run_child(descriptor: int, error_descriptor: int) -> None:
    """Receive a function by the socket *descriptor*, call it, send the result, and end this process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(error_descriptor, _STANDARD_OUTPUT)
        os.dup2(error_descriptor, _STANDARD_ERROR)
        connection: Any = Connection(descriptor)
        environment, folder, module_path, level, function, args = connection.recv()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:] = module_path
        # The server may have read the configuration of another environment.
        _config.config.cache_clear()
        cache.default.cache_clear()
        logger = logging.getLogger(_LOGGER_NAME)
        events: Any = _Events(connection)
        logger.handlers = [_ForwardingHandler(events)]
        logger.propagate = False
        logger.setLevel(level)
        progress.report_to(lambda *step: events.send("began", step))
        events.send(*_call(function, args))
    finally:
        os._exit(0)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any]:
    """Return the event "returned" with the result of *function*, or "failed" with the exception."""
    try:
        return "returned", function(*args)
    except (PtxlinkError, KeyboardInterrupt) as error:
        log.info("%s", traceback.format_exc())
        return "failed", error
    except BaseException:  # noqa: BLE001 - the caller raises it, and other exceptions may refuse to be pickled
        return "failed", RuntimeError(traceback.format_exc())
    finally:
        # Flush before the result is sent: the caller may exit on receiving it, which kills this process.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


class _Events:
    """Sends events to the caller. Thread-safe."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = Lock()

    def send(self, event: str, value: Any) -> None:
        with self._lock.held:
            self._connection.send((event, value))


class _ForwardingHandler(QueueHandler):
    """Sends log records to the caller as events."""

    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send("logged", record)
