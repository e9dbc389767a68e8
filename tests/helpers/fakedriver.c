/*
 * Stands in for libcuda.so.1 where kernels are launched without a device. Each call that matters is a line of the
 * file FAKE_LOG, with the arguments of a launch in hexadecimal, whose sizes FAKE_SIZES lists; the kernel FAKE_PLAIN
 * has none. FAKE_ELSEWHERE lists addresses that no kernel can access, each with its device or ? for memory that is not
 * known, such as "0x7000:1 0x8000:?". Kernels have FAKE_STATIC bytes of shared memory, and may have 48 KiB, or what is set, and
 * FAKE_THREADS threads of a block. FAKE_FAIL is the name of a function and the error that it returns, such as "cuLibraryLoadData:209".
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILS(name)                        \
  {                                        \
    const int error = failure(name);       \
    if (error) return error;               \
  }

static _Thread_local void *current;
static _Atomic int allowed = 49152;

static int static_shared(void) {
  const char *size = getenv("FAKE_STATIC");
  return size ? atoi(size) : 0;
}

static int failure(const char *name) {
  const char *wanted = getenv("FAKE_FAIL");
  const size_t length = strlen(name);
  return wanted && !strncmp(wanted, name, length) && wanted[length] == ':' ? atoi(wanted + length + 1) : 0;
}

static void note(const char *format, ...) {
  const char *path = getenv("FAKE_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fputs(line, file);
  fclose(file);
}

int cuInit(unsigned flags) { FAILS("cuInit") return (int)flags; }

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }

int cuGetErrorName(int error, const char **name) {
  *name = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_OTHER";
  return 0;
}

int cuGetErrorString(int error, const char **text) { *text = error ? "made up" : "none"; return 0; }

int cuDeviceGetCount(int *count) { FAILS("cuDeviceGetCount") *count = 2; return 0; }

static const int limits[] = {1024, 1024, 1024, 64, 2147483647, 65535, 65535};

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 + device : attribute == 97 && device == 5 ? 232448 : 0;
  if (attribute >= 1 && attribute <= 7 && device == 5) *value = limits[attribute - 1];
  return 0;
}

int cuCtxGetCurrent(void **context) { *context = current; return 0; }

int cuCtxSetCurrent(void *context) { note("context %p\n", context); current = context; return 0; }

int cuCtxGetDevice(int *device) { *device = 5; return 0; }

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (char *)0x100 + device; return 0; }

int cuStreamGetCtx(void *stream, void **context) { *context = (char *)stream + 1; return 0; }

/* As observed with two devices and a driver of CUDA 13.0. */
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  char place[32];
  snprintf(place, sizeof place, "%#llx:", (unsigned long long)address);
  const char *elsewhere = getenv("FAKE_ELSEWHERE"), *found = elsewhere ? strstr(elsewhere, place) : NULL;
  const char device = found ? found[strlen(place)] : '5';
  if ((found && attribute == 3) || device == '?') return 1;
  if (attribute == 3) memcpy(value, &address, sizeof address);
  else if (attribute == 9) *(int *)value = device - '0';
  else return 1;
  return 0;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  note("wait %p %p %u\n", stream, event, flags);
  return 0;
}

int cuEventCreate(void **event, unsigned flags) { *event = (char *)0x200 + flags; return 0; }

int cuEventRecord(void *event, void *stream) { note("record %p %p\n", event, stream); return 0; }

int cuEventDestroy_v2(void *event) { note("destroy %p\n", event); return 0; }

int cuLibraryLoadData(void **library, const void *code, const void *jit, void **jit_values, unsigned jit_count,
                      const void *options, void **values, unsigned count) {
  FAILS("cuLibraryLoadData")
  unsigned magic;
  memcpy(&magic, code, sizeof magic);
  *library = malloc(1);
  note("load %08x %d\n", magic, jit || jit_values || jit_count || options || values || count);
  return 0;
}

int cuLibraryUnload(void *library) { note("unload\n"); free(library); return 0; }

int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  FAILS("cuLibraryGetKernel")
  *kernel = strdup(name);
  return library ? 0 : 1;
}

int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
  const char *threads = getenv("FAKE_THREADS");
  *value = attribute == 1 && kernel && device == 5 ? static_shared() : 0;
  if (attribute == 0 && kernel && device == 5) *value = threads ? atoi(threads) : limits[0];
  return 0;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  if (attribute == 8) allowed = value;
  note("attribute %d %d %s %d\n", attribute, value, (char *)kernel, device);
  return 0;
}

struct attribute {
  int id, padding;
  unsigned value[16];
};

struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct attribute *attributes;
  unsigned count;
};

int cuLaunchKernelEx(const struct config *config, void *kernel, void **arguments, void **extra) {
  FAILS("cuLaunchKernelEx")
  const unsigned *g = config->grid, *b = config->block, threads = b[0] * b[1] * b[2];
  const unsigned asked[] = {threads, b[0], b[1], b[2], g[0], g[1], g[2]};
  for (int number = 0; number < 7; ++number) {
    if (asked[number] > (unsigned)limits[number]) return 1;
  }
  if (getenv("FAKE_THREADS") && threads > (unsigned)atoi(getenv("FAKE_THREADS"))) return 701;
  if ((int)config->shared > allowed) return 1;
  if (allowed == 49152 && (int)config->shared + static_shared() > allowed) return 1;
  char said[256] = "";
  for (unsigned number = 0; number < config->count; ++number) {
    const struct attribute *each = &config->attributes[number];
    const unsigned *value = each->value;
    /* The numbers of CUlaunchAttributeID. */
    if (each->id == 2 && value[0] == 1) strcat(said, "cooperative ");
    else if (each->id == 6 && value[0] == 1) strcat(said, "programmatic ");
    else if (each->id == 4) sprintf(said + strlen(said), "cluster %u,%u,%u ", value[0], value[1], value[2]);
    else return 1;
  }
  char line[2048] = "";
  size_t length = 0;
  const char *sizes = getenv("FAKE_SIZES"), *plain = getenv("FAKE_PLAIN");
  if (plain && !strcmp(plain, kernel)) sizes = NULL;
  for (size_t number = 0; sizes && *sizes; ++number) {
    char *end;
    const long size = strtol(sizes, &end, 10);
    for (long at = 0; at < size; ++at) {
      length += (size_t)sprintf(line + length, "%02x", ((unsigned char *)arguments[number])[at]);
    }
    line[length++] = ' ';
    sizes = *end ? end + 1 : end;
  }
  note("%slaunch %s %u,%u,%u %u,%u,%u %u %p %d %s\n", said, (char *)kernel, g[0], g[1], g[2], b[0], b[1], b[2],
       config->shared, config->stream, extra != NULL, line);
  return 0;
}
