/* cuLink: collect inputs, which Python links to one PTX module. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct CUlinkState_st {
  unsigned count; /* of inputs, each with its size in bytes and its name for messages */
  void **inputs;
  size_t *sizes;
  char **names;
  void *output;    /* the linked PTX; NULL before cuLinkComplete */
  char *error_log; /* the program's buffer for errors; NULL if it passed none */
  size_t error_log_size;
};

static CUresult append_input(CUlinkState state, const void *data, size_t size, const char *name) {
  void **inputs = realloc(state->inputs, (state->count + 1) * sizeof *inputs);
  if (inputs) state->inputs = inputs;
  size_t *sizes = realloc(state->sizes, (state->count + 1) * sizeof *sizes);
  if (sizes) state->sizes = sizes;
  char **names = realloc(state->names, (state->count + 1) * sizeof *names);
  if (names) state->names = names;
  void *copy = malloc(size);
  char *name_copy = strdup(name ? name : "");
  REQUIRE(inputs && sizes && names && copy && name_copy, CUDA_ERROR_OUT_OF_MEMORY);
  state->inputs[state->count] = memcpy(copy, data, size);
  state->sizes[state->count] = size;
  state->names[state->count++] = name_copy;
  return CUDA_SUCCESS;
}

CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(state);
  *state = calloc(1, sizeof **state);
  REQUIRE(*state, CUDA_ERROR_OUT_OF_MEMORY);
  for (unsigned index = 0; index < count; ++index) {
    if (options[index] == CU_JIT_ERROR_LOG_BUFFER) (*state)->error_log = values[index];
    if (options[index] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) (*state)->error_log_size = (size_t)values[index];
  }
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned count, CUjit_option *options, void **values) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(state && data && size);
  if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) return not_supported("cuLinkAddData of machine code");
  return append_input(state, data, size, name);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                          CUjit_option *options, void **values) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(state && path);
  FILE *file = fopen(path, "rb");
  REQUIRE(file, CUDA_ERROR_FILE_NOT_FOUND);
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  char *content = size > 0 ? malloc((size_t)size) : NULL;
  const bool is_complete = content && fread(content, 1, (size_t)size, file) == (size_t)size;
  fclose(file);
  const CUresult result = is_complete
                              ? cuLinkAddData_v2(state, type, content, (size_t)size, path, count, options, values)
                              : CUDA_ERROR_FILE_NOT_FOUND;
  free(content);
  return result;
}

CUresult cuLinkComplete(CUlinkState state, void **output, size_t *size) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(state && output);
  char message[MAX_MESSAGE_SIZE] = "";
  size_t output_size = 0;
  free(state->output);
  state->output = NULL;
  const CUresult result = python.link(state->inputs, state->sizes, (const char *const *)state->names, state->count,
                                      &state->output, &output_size, message, sizeof message);
  if (result != CUDA_SUCCESS && state->error_log) snprintf(state->error_log, state->error_log_size, "%s", message);
  *output = state->output;
  if (size) *size = output_size;
  return result;
}

CUresult cuLinkDestroy(CUlinkState state) {
  CHECK(check_initialized());
  REQUIRE_VALUE(state);
  for (unsigned index = 0; index < state->count; ++index) {
    free(state->inputs[index]);
    free(state->names[index]);
  }
  free(state->inputs);
  free(state->sizes);
  free(state->names);
  free(state->output);
  free(state);
  return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
  return cuLinkCreate_v2(count, options, values, state);
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                       unsigned count, CUjit_option *options, void **values) {
  return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                       CUjit_option *options, void **values) {
  return cuLinkAddFile_v2(state, type, path, count, options, values);
}
