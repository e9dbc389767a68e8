# Builds the CUDA programs of a project so that they run without a GPU, by `numba-ptxlink cpu -- PROGRAM`: with the shared
# runtime library, with PTX in place of machine code, and with line numbers, which are needed for error messages.
#
# find_package(NumbaPtxlink) includes this file if NumbaPtxlink_CPU is ON. Configure a project that does not call
# find_package(NumbaPtxlink) with -DCMAKE_PROJECT_INCLUDE=.../NumbaPtxlinkCPU.cmake. NumbaPtxlink_CPU_ARCHITECTURE is the
# compute capability: 75 by default, as for `numba-ptxlink cpu`.

if(NOT NumbaPtxlink_CPU_ARCHITECTURE)
  set(NumbaPtxlink_CPU_ARCHITECTURE 75)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_ARCHITECTURES "${NumbaPtxlink_CPU_ARCHITECTURE}-virtual")
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>")

# A target may set other architectures. Replace them after all targets of the directory have been added.
function(_numba_ptxlink_build_for_cpu directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type "${target}" TYPE)
    if(NOT type MATCHES "^(INTERFACE_LIBRARY|UTILITY)$")
      # Without INTERPROCEDURAL_OPTIMIZATION OFF, the device link would compile LTO-IR to machine code.
      set_target_properties("${target}" PROPERTIES CUDA_RUNTIME_LIBRARY Shared INTERPROCEDURAL_OPTIMIZATION OFF
                            CUDA_ARCHITECTURES "${NumbaPtxlink_CPU_ARCHITECTURE}-virtual")
    endif()
  endforeach()
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory IN LISTS subdirectories)
    _numba_ptxlink_build_for_cpu("${subdirectory}")
  endforeach()
endfunction()
cmake_language(DEFER CALL _numba_ptxlink_build_for_cpu "${CMAKE_CURRENT_SOURCE_DIR}")
