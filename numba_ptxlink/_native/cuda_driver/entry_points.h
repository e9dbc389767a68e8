/* The tables in stubs.c, by tools/cuda_driver_stubs.py: the functions of the driver API, and the names of errors. */
#pragma once

int not_supported(const char *function); /* returns CUDA_ERROR_NOT_SUPPORTED, and logs the name once */

struct entry_point {
  const char *name;
  int release; /* the first CUDA release with this version of the function: 12050 for 12.5 */
  int (*function)(void);
};
extern const struct entry_point entry_points[]; /* sorted by name, then by release */
extern const unsigned entry_point_count;

struct error_name {
  int error;
  const char *name, *words; /* such as "CUDA_ERROR_INVALID_VALUE" and "error invalid value" */
};
extern const struct error_name error_names[];
extern const unsigned error_name_count;
