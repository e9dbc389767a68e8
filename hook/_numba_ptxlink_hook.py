"""
Tells numba_ptxlink when modules of numba-cuda and of numba-cuda-mlir have been imported.

numba_ptxlink.pth runs this at every start of the interpreter, so it imports nothing and defines very little.
If numba_ptxlink is damaged, imports of those modules still succeed.
"""

import os
import sys

PACKAGES = {"numba.cuda": "numba-cuda", "numba_cuda_mlir": "numba-cuda-mlir"}
"""The front ends by the packages whose modules the plugin patches."""

PREFIXES = tuple(f"{package}." for package in PACKAGES)

OFF = ("0", "off", "false", "no")
"""The values of NUMBA_PTXLINK that switch the plugin off, as the package knows them, too."""

REDIRECTOR = "_numba_cuda_redirector"
"""Redirects `numba.cuda` to numba-cuda. A .pth file imports it, which Python does not read in PYTHONPATH."""


class Finder:
    """A meta path finder that delegates to the other finders, and wraps the loader to run after it."""

    def __init__(self):
        self.busy = set()
        self.hooked = {}

    def waits_for(self, name):
        """
        Return whether the plugin may patch the module *name*.

        Imports nothing: Python holds an import lock here, and a thread that imports the plugin waits for it.
        """
        if name == "numba":
            return REDIRECTOR not in sys.modules
        if not name.startswith(PREFIXES):
            return False
        hooked = self.hooked.get(owner(name))
        return hooked is None or name in hooked

    def learn(self, front_end):
        """Get the list of the modules that the plugin patches."""
        if front_end not in self.hooked:
            try:
                from numba_ptxlink import _plugin

                self.hooked[front_end] = _plugin.hooked(front_end)
            except Exception as error:
                self.give_up(error, front_end)

    def give_up(self, error, front_end):
        """Stop waiting for modules of the front end, and warn once, with the reason."""
        import warnings

        warned = self.hooked.get(front_end) == frozenset()
        self.hooked[front_end] = frozenset()
        message = (
            f"numba-ptxlink is damaged ({type(error).__name__}: {error}), so {front_end} uses its own "
            "linker; reinstall it: python -m pip install --force-reinstall --no-deps numba-ptxlink. "
            f"If it was uninstalled, remove {__file__} and numba_ptxlink.pth beside it."
        )
        if not warned:
            try:
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:
                # Warnings are errors in this process, and an import must not fail because of one.
                sys.stderr.write(f"{message}\n")

    def find_spec(self, name, path=None, target=None):
        # Python calls this for each import of any module. Other finders may search sys.meta_path again.
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
    """The original loader, followed by a call of the plugin."""

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
    """Redirect `numba.cuda` to numba-cuda if that is installed, unless the plugin is switched off."""
    if os.environ.get("NUMBA_PTXLINK", "").strip().lower() in OFF:
        return
    try:  # noqa: SIM105 - contextlib is not imported yet
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
    """Add the finder to sys.meta_path, once."""
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def remove():
    """Remove the finder from sys.meta_path."""
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
