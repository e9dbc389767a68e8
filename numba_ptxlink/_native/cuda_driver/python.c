/*
 * Find or start the Python interpreter that compiles PTX and runs kernels.
 *
 * This library is not linked with libpython, since one build has to work with each version of Python: the library looks
 * up Python's functions by name. An interpreter that the library starts installs no signal handlers, and is never
 * finalized, since threads of the program may run kernels until the process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct python_functions python; /* all NULL until Python calls numba_ptxlink_register */
bool has_started_python;
static CUresult attach_result; /* of attach_once */

/* Declare a pointer to a function of Python's C API, which is NULL if `library` lacks the function. */
#define PYTHON_FUNCTION(type, name, ...) type (*name)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(library, #name)

/* Python code for an interpreter that this library starts: write to stdout of the C library, so that output of kernels
   and of the program appears in the right order. */
static const char redirect_output[] =
    "import ctypes, sys\n"
    "class ProgramOutput:\n"
    "    encoding, errors = 'utf-8', 'surrogateescape'\n"
    "    def write(self, text):\n"
    "        content, library = text.encode(errors='surrogateescape'), ctypes.PyDLL(None)\n"
    "        library.fwrite(content, 1, len(content), ctypes.c_void_p.in_dll(library, 'stdout'))\n"
    "        return len(text)\n"
    "    def flush(self):\n"
    "        pass\n"
    "sys.stdout = ProgramOutput()\n";
/* Load LLVM before `at_exit` is registered: exit handlers run in reverse order, so that LLVM is destroyed after it. */
static const char load_compiler[] =
    "from numba_ptxlink._cpu import machine_code\n"
    "machine_code.target()\n";
static const char import_device[] =
    "from numba_ptxlink._link import cpu_device\n"
    "cpu_device.attach()\n";

void numba_ptxlink_register(const struct python_functions *functions) { python = *functions; }

/* Print why Python cannot be used; return false. */
static bool report_failure(const char *reason) {
  fprintf(stderr, "numba-ptxlink: the CPU device cannot use Python: %s.\n", reason);
  return false;
}

/* Start an interpreter. PyConfig is not used: its layout differs between releases. */
static bool start_interpreter(void *library, const char *executable) {
  PYTHON_FUNCTION(void *, PyInitConfig_Create, void); /* since Python 3.14; 3.15 lacks Py_SetProgramName */
  PYTHON_FUNCTION(int, PyInitConfig_SetStr, void *, const char *, const char *);
  PYTHON_FUNCTION(int, PyInitConfig_SetInt, void *, const char *, int64_t);
  PYTHON_FUNCTION(int, PyInitConfig_GetError, void *, const char **);
  PYTHON_FUNCTION(int, Py_InitializeFromInitConfig, void *);
  PYTHON_FUNCTION(void, Py_SetProgramName, const wchar_t *);
  PYTHON_FUNCTION(void, Py_InitializeEx, int);
  PYTHON_FUNCTION(void *, PyEval_SaveThread, void);
  if (PyInitConfig_Create) {
    void *config = PyInitConfig_Create();
    const char *reason = "no memory";
    if (!config) return report_failure(reason);
    if (PyInitConfig_SetStr(config, "executable", executable) ||
        PyInitConfig_SetInt(config, "install_signal_handlers", 0) || Py_InitializeFromInitConfig(config)) {
      PyInitConfig_GetError(config, &reason);
      return report_failure(reason);
    }
  } else if (Py_SetProgramName && Py_InitializeEx) {
    static wchar_t name[4096]; /* Python keeps the pointer */
    if (mbstowcs(name, executable, sizeof name / sizeof *name - 1) == (size_t)-1)
      return report_failure("the path of its executable has characters that the locale lacks");
    Py_SetProgramName(name);
    Py_InitializeEx(0);
  } else {
    return report_failure("the library named by NUMBA_PTXLINK_CPU_LIBPYTHON has no functions of Python");
  }
  PyEval_SaveThread(); /* releases the GIL, so that any thread can call Python */
  return true;
}

/* Load libpython, and start an interpreter. */
static bool load_python(void) {
  const char *path = getenv("NUMBA_PTXLINK_CPU_LIBPYTHON"), *executable = getenv("NUMBA_PTXLINK_CPU_PYTHON");
  if (!path || !executable)
    return report_failure("NUMBA_PTXLINK_CPU_PYTHON or NUMBA_PTXLINK_CPU_LIBPYTHON is not set; "
                  "start the program with: numba-ptxlink cpu -- PROGRAM");
  /* Extension modules take Python's functions from the global scope. */
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  return library ? start_interpreter(library, executable) : report_failure(dlerror());
}

/* Run Python code, which prints its errors; return whether there was none. */
static bool run_in_python(const char *code) {
  void *library = RTLD_DEFAULT;
  PYTHON_FUNCTION(int, PyRun_SimpleStringFlags, const char *, void *);
  PYTHON_FUNCTION(int, PyGILState_Ensure, void);
  PYTHON_FUNCTION(void, PyGILState_Release, int);
  if (!PyRun_SimpleStringFlags || !PyGILState_Ensure || !PyGILState_Release)
    return report_failure("this process has a Python without its C API");
  const int state = PyGILState_Ensure();
  const int failed = PyRun_SimpleStringFlags(code, NULL);
  PyGILState_Release(state);
  return !failed;
}

/*
 * Libraries that Python has loaded, such as OpenSSL and LLVM, are destroyed at exit. Before that, stop all threads that
 * could use the libraries: let none compile, and none run Python, since this thread keeps the GIL. Kernels may go on.
 */
static void at_exit(void) {
  void *library = RTLD_DEFAULT;
  PYTHON_FUNCTION(int, PyGILState_Ensure, void);
  static bool called;
  if (called) return;
  called = true;
  deinitialize_driver();
  python.stop_compiling();
  PyGILState_Ensure();
}

/* Find the interpreter of this process, or start one, and let it call numba_ptxlink_register. */
static void attach_once(void) {
  void *library = RTLD_DEFAULT;
  PYTHON_FUNCTION(int, Py_IsInitialized, void);
  has_started_python = !Py_IsInitialized || !Py_IsInitialized();
  bool attached;
  if (has_started_python) {
    /* Python changes the locale, and the import of its signal module installs a handler of SIGINT. Restore both. */
    char *locale = strdup(setlocale(LC_CTYPE, NULL));
    struct sigaction sigint_action;
    sigaction(SIGINT, NULL, &sigint_action);
    attached = load_python() && run_in_python(redirect_output) && run_in_python(load_compiler) &&
               run_in_python(import_device);
    /* Register this handler last, so that it runs before the destructors of libraries that Python has loaded. */
    if (attached) atexit(at_exit);
    sigaction(SIGINT, &sigint_action, NULL);
    setlocale(LC_CTYPE, locale);
    free(locale);
  } else {
    PYTHON_FUNCTION(int, Py_AtExit, void (*)(void));
    attached = run_in_python(import_device);
    /*
     * Let calls return an error after Python has ended: some destructors run then, such as one of cuda.core that
     * releases a context.
     */
    if (attached && Py_AtExit) Py_AtExit(deinitialize_driver);
  }
  attach_result = attached && python.load ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

CUresult attach_python(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (python.load) return CUDA_SUCCESS;
  pthread_once(&once, attach_once);
  return attach_result;
}
