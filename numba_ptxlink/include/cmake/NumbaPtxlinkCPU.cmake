# Builds the CUDA programs of a project so that they run without a GPU, by `numba-ptxlink cpu -- PROGRAM`: with the shared
# runtime library, with PTX in place of machine code, and with line numbers, which errors name.
#
# find_package(NumbaPtxlink) includes it if NumbaPtxlink_CPU is ON. Projects without that are configured with
# -DCMAKE_PROJECT_INCLUDE=.../NumbaPtxlinkCPU.cmake. NumbaPtxlink_CPU_ARCHITECTURE is the compute capability: 75 by
# default, as of `numba-ptxlink cpu`.

if(NOT NumbaPtxlink_CPU_ARCHITECTURE)
  set(NumbaPtxlink_CPU_ARCHITECTURE 75)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_ARCHITECTURES "${NumbaPtxlink_CPU_ARCHITECTURE}-virtual")
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>")

# Targets may have their own architectures: replace them when all targets of the directory are there.
function(_numba_ptxlink_build_for_cpu directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type "${target}" TYPE)
    if(NOT type MATCHES "^(INTERFACE_LIBRARY|UTILITY)$")
      # The device link of LTO-IR would make machine code.
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
