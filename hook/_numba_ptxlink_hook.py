"""
Install the import hook, which calls the plugin after modules of the front ends are imported.

The front ends are numba-cuda and numba-cuda-mlir; the plugin, numba_ptxlink._plugin, replaces their linkers.
numba_ptxlink.pth imports this module at every start of the interpreter. So that Python starts quickly, the
module imports only os and sys. If numba_ptxlink is damaged, imports of the front ends still succeed.
"""

import os
import sys

PACKAGES = {"numba.cuda": "numba-cuda", "numba_cuda_mlir": "numba-cuda-mlir"}
"""The name of each front end, by the package whose modules the plugin patches."""

PREFIXES = tuple(f"{package}." for package in PACKAGES)
"""The beginnings of the names of modules that the plugin may patch."""

OFF = ("0", "off", "false", "no")
"""The values of NUMBA_PTXLINK that switch the plugin off: a copy of those in numba_ptxlink/_config.py."""

REDIRECTOR = "_numba_cuda_redirector"
"""
The module of numba-cuda that makes `import numba.cuda` import numba-cuda, not Numba's own `numba.cuda`.

A .pth file of numba-cuda imports the redirector at the start of Python, but Python reads no .pth files in
folders of PYTHONPATH. So this hook imports the redirector before `numba` runs.
"""


class Finder:
    """
    A meta path finder that finds modules by the other finders, and wraps their loaders in `Loader`.

    Attributes:
        names_in_search: The modules that the other finders are searching for at the moment.
        hooked_modules: For each front end whose import has begun, the modules that the plugin patches; an
            empty set after `leave_unpatched`.
    """

    def __init__(self):
        self.names_in_search = set()
        self.hooked_modules = {}

    def may_patch(self, name):
        """
        Return whether the import of *name* has to call this hook: for modules that the plugin patches.

        Before the plugin has listed these modules, the result is True for all modules of the front end. It is
        also True for `numba` before the redirector is imported.

        This method must not import the plugin: Python holds the import lock of the module *name* here.
        Another thread that imports the plugin may wait for that lock, and this thread for the plugin's, so
        that neither would continue.
        """
        if name == "numba":
            return REDIRECTOR not in sys.modules
        if not name.startswith(PREFIXES):
            return False
        names = self.hooked_modules.get(front_end_of(name))
        return names is None or name in names

    def load_hooked_modules(self, front_end):
        """Read from the plugin which modules of *front_end* it patches."""
        if front_end not in self.hooked_modules:
            try:
                from numba_ptxlink import _plugin

                self.hooked_modules[front_end] = _plugin.hooked(front_end)
            except Exception as error:
                self.leave_unpatched(error, front_end)

    def leave_unpatched(self, error, front_end):
        """Leave all modules of *front_end* unpatched, and warn once that *error* is the reason."""
        import warnings

        has_warned = self.hooked_modules.get(front_end) == frozenset()
        self.hooked_modules[front_end] = frozenset()
        message = (
            f"numba-ptxlink is damaged ({type(error).__name__}: {error}), so {front_end} uses its own "
            "linker; reinstall it: python -m pip install --force-reinstall --no-deps numba-ptxlink. "
            f"If it was uninstalled, remove {__file__} and numba_ptxlink.pth beside it."
        )
        if not has_warned:
            try:
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:
                # Warnings are errors in this process, and an import must not fail because of one.
                sys.stderr.write(f"{message}\n")

    def find_spec(self, name, path=None, target=None):
        # Return quickly, since Python calls this method at each import of any module.
        if not name.startswith(PREFIXES) and name != "numba":
            return None
        # Another finder may search sys.meta_path itself, and so call this method again for the name.
        if name in self.names_in_search or not self.may_patch(name):
            return None
        self.names_in_search.add(name)
        try:
            for finder in sys.meta_path:
                find_spec = getattr(finder, "find_spec", None)
                if finder is self or find_spec is None:
                    continue
                spec = find_spec(name, path, target)
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.names_in_search.discard(name)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader)
        return spec


class Loader:
    """The original loader; calls the plugin after it has executed a module."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, attribute):
        return getattr(self.loader, attribute)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        # The module's code must see the original loader, which importlib.resources, for example, uses.
        module.__spec__.loader = module.__loader__ = self.loader
        if module.__name__ == "numba":
            redirect_numba_cuda()
            self.loader.exec_module(module)
            return
        front_end = front_end_of(module.__name__)
        finder.load_hooked_modules(front_end)
        self.loader.exec_module(module)
        # The plugin has listed its modules now, and this may be none of them.
        if not finder.may_patch(module.__name__):
            return
        try:
            from numba_ptxlink import _plugin

            _plugin.imported(module, front_end)
        except Exception as error:
            finder.leave_unpatched(error, front_end)


def redirect_numba_cuda():
    """Redirect `numba.cuda` to numba-cuda if numba-cuda is installed and the plugin is not switched off."""
    if os.environ.get("NUMBA_PTXLINK", "").strip().lower() in OFF:
        return
    try:  # noqa: SIM105 - contextlib is not imported yet
        __import__(REDIRECTOR)
    except ImportError:
        pass


def front_end_of(name):
    """Return the front end that the module *name* belongs to; None if it belongs to none."""
    for package, front_end in PACKAGES.items():
        if name.startswith(f"{package}."):
            return front_end
    return None


finder = Finder()


def install():
    """Add the finder to sys.meta_path, once."""
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def remove():
    """Remove the finder from sys.meta_path."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def use_device():
    """Make the CPU the CUDA device of the process if NUMBA_PTXLINK_DEVICE is "cpu"; exit for other values."""
    try:
        from numba_ptxlink._cpu import device
    except Exception as error:
        sys.exit(f"numba-ptxlink: error: NUMBA_PTXLINK_DEVICE is set, and the package is damaged ({error}).")
    device.enable_from_environment()


install()
if os.environ.get("NUMBA_PTXLINK_DEVICE"):
    use_device()
