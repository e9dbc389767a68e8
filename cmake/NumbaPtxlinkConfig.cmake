# This file is installed in share/cmake/NumbaPtxlink of a Python environment, where find_package searches if the
# environment's bin folder is on PATH. The file includes the CMake package, whose folder the command numba-ptxlink prints.
get_filename_component(_numba_ptxlink_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
execute_process(COMMAND "${_numba_ptxlink_prefix}/bin/numba-ptxlink" --cmake-dir
                OUTPUT_VARIABLE _numba_ptxlink_dir ERROR_VARIABLE _numba_ptxlink_error
                RESULT_VARIABLE _numba_ptxlink_status OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _numba_ptxlink_status EQUAL 0)
  set(NumbaPtxlink_FOUND FALSE)
  set(NumbaPtxlink_NOT_FOUND_MESSAGE
      "${_numba_ptxlink_prefix}/bin/numba-ptxlink --cmake-dir failed: ${_numba_ptxlink_status} ${_numba_ptxlink_error} "
      "Install numba-ptxlink again, or set NumbaPtxlink_DIR.")
  return()
endif()
include("${_numba_ptxlink_dir}/NumbaPtxlinkConfig.cmake")
