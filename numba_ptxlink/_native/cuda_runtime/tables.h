/* Generated tables, and the report of stubs. */
#pragma once

int not_supported(const char *function); /* returns cudaErrorNotSupported, and reports the name once */

struct error_name {
  int error;
  const char *name, *words;
};
extern const struct error_name error_names[];
extern const unsigned error_name_count;

struct device_property {
  short attribute, offsets[2]; /* of cudaDeviceProp in CUDA 12 and 13; -1 if it is missing there */
};
extern const struct device_property device_properties[];
extern const unsigned device_property_count;
extern const unsigned device_properties_sizes[]; /* of cudaDeviceProp, in the same order */
