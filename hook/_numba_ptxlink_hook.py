"""
Tells numba_ptxlink when modules of numba-cuda and of numba-cuda-mlir have been imported.

Run by numba_ptxlink.pth at every start of the interpreter, so it imports nothing and defines next to nothing.
Whatever is wrong with numba_ptxlink, those modules are imported.
"""

import os
import sys

PACKAGES = {"numba.cuda": "numba-cuda", "numba_cuda_mlir": "numba-cuda-mlir"}
"""The front ends by the packages whose modules the plugin replaces something in."""

PREFIXES = tuple(f"{package}." for package in PACKAGES)

REDIRECTOR = "_numba_cuda_redirector"
"""Makes `numba.cuda` numba-cuda's. A .pth file imports it, which Python does not read in PYTHONPATH."""


class Finder:
    """A meta path finder that lets the others find, and is called after the import."""

    def __init__(self):
        self.busy = set()
        self.hooked = {}

    def waits_for(self, name):
        """
        Return whether the plugin may replace something in the module *name*.

        Imports nothing: Python holds its import lock here, and a thread that imports the plugin waits for it.
        """
        if name == "numba":
            return REDIRECTOR not in sys.modules
        if not name.startswith(PREFIXES):
            return False
        hooked = self.hooked.get(owner(name))
        return hooked is None or name in hooked

    def learn(self, front_end):
        """Ask the plugin, which alone knows, for the modules that it replaces something in."""
        if front_end not in self.hooked:
            try:
                from numba_ptxlink import _plugin

                self.hooked[front_end] = _plugin.hooked(front_end)
            except Exception as error:
                self.give_up(error, front_end)

    def give_up(self, error, front_end):
        """Wait for no module of the front end any more, and warn of the reason once."""
        import warnings

        warned = self.hooked.get(front_end) == frozenset()
        self.hooked[front_end] = frozenset()
        message = (
            f"numba-ptxlink is damaged ({type(error).__name__}: {error}); {front_end} goes on without it. "
            "Install it again: python -m pip install --force-reinstall --no-deps numba-ptxlink. "
            f"If it is not to be there, remove {__file__} and numba_ptxlink.pth beside it."
        )
        if not warned:
            try:
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:
                # Warnings are errors here, and an import is not to fail for one.
                sys.stderr.write(f"{message}\n")

    def find_spec(self, name, path=None, target=None):
        # Each import of any module comes here. Others ask the whole meta path again, this finder included.
        if not name.startswith(PREFIXES) and name != "numba":
            return None
        if name in self.busy or not self.waits_for(name):
            return None
        self.busy.add(name)
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
            self.busy.discard(name)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader)
        return spec


class Loader:
    """The loader that would have been used, followed by a call to the plugin."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, attribute):
        return getattr(self.loader, attribute)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        if module.__name__ == "numba":
            redirect()
            self.loader.exec_module(module)
            return
        front_end = owner(module.__name__)
        finder.learn(front_end)
        self.loader.exec_module(module)
        if not finder.waits_for(module.__name__):
            return
        try:
            from numba_ptxlink import _plugin

            _plugin.imported(module, front_end)
        except Exception as error:
            finder.give_up(error, front_end)


def redirect():
    """Let `numba.cuda` be numba-cuda's where that is installed, but not for a plugin that is switched off."""
    if os.environ.get("NUMBA_PTXLINK", "").strip().lower() in {"0", "off", "false", "no"}:
        return
    try:  # noqa: SIM105 - contextlib would be imported for it
        __import__(REDIRECTOR)
    except ImportError:
        pass


def owner(name):
    """Return the front end that has the module *name*, which begins with one of the prefixes."""
    for package, front_end in PACKAGES.items():
        if name.startswith(f"{package}."):
            return front_end
    return None


finder = Finder()


def install():
    """Wait for the front ends; does nothing where it already does."""
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def remove():
    """Stop waiting."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def use_device():
    """Make the CPU the CUDA device of the process, if NUMBA_PTXLINK_DEVICE says so."""
    try:
        from numba_ptxlink._cpu import device
    except Exception as error:
        sys.exit(f"numba-ptxlink: error: NUMBA_PTXLINK_DEVICE is set, and the package is damaged ({error}).")
    device.enable_from_environment()


install()
if os.environ.get("NUMBA_PTXLINK_DEVICE"):
    use_device()
