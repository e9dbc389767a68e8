/* The tables in stubs.c, which tools/cuda_runtime_stubs.py generates, and the function that stubs call. */
#pragma once

int not_supported(const char *function); /* returns cudaErrorNotSupported, and reports the name once */

struct error_name {
  int error;
  const char *name, *words; /* such as "cudaErrorInvalidValue" and "invalid value" */
};
extern const struct error_name error_names[];
extern const unsigned error_name_count;

/* A member of cudaDeviceProp that is an attribute of cuDeviceGetAttribute: its offsets in bytes in the structures of
   CUDA 12 and 13, -1 if the structure lacks the member. */
struct device_property {
  short attribute, offsets[2];
};
extern const struct device_property device_properties[];
extern const unsigned device_property_count;
extern const unsigned device_properties_sizes[]; /* bytes of cudaDeviceProp in CUDA 12 and 13 */
