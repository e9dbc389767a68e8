# find_package(NumbaPtxlink CONFIG) with CMAKE_PREFIX_PATH, or NumbaPtxlink_DIR, from `numba-ptxlink --cmake-dir`.
#
# numba_ptxlink_add_library(NAME SOURCES udfs.py | MODULE package.module
#                           [ARCHITECTURES 80 90] [EMIT KIND...] [INCLUDE_DIRECTORIES DIR...]
#                           [OUTPUT_DIRECTORY DIR] [OPTIONS OPTION...])
#
# adds the target NAME, a static library of the functions and kernels in a Python file. Targets that link it find
# the header NAME.h, and take its device code into their device link: as machine code, or as LTO-IR where
# INTERPROCEDURAL_OPTIMIZATION is on. It runs one command, again whenever a file changes that it has imported:
#
#   numba-ptxlink export udfs.py --name NAME -o DIR --arch sm_80 --arch sm_90 --emit object,KIND... -I DIR... OPTION...
#
# INCLUDE_DIRECTORIES have the headers that define structs for the functions; what links NAME searches them, too,
# in this build: an installed target has no include directories, so install the headers and give it theirs.
# OPTIONS may have generator expressions, such as "$<$<CONFIG:Debug>:--lineinfo>".
# ARCHITECTURES defaults to CMAKE_CUDA_ARCHITECTURES, DIR to ${CMAKE_CURRENT_BINARY_DIR}/NAME. The target property
# NUMBA_PTXLINK_DIRECTORY is DIR.

# The environment that this file is installed in: lib/python3.x/site-packages/numba_ptxlink/include/cmake.
get_filename_component(_numba_ptxlink_prefix "${CMAKE_CURRENT_LIST_DIR}/../../../../../.." ABSOLUTE)
find_program(NUMBA_PTXLINK_EXECUTABLE numba-ptxlink HINTS "${_numba_ptxlink_prefix}/bin"
             DOC "The command numba-ptxlink")
if(NOT NUMBA_PTXLINK_EXECUTABLE)
  set(NumbaPtxlink_FOUND FALSE)
  set(NumbaPtxlink_NOT_FOUND_MESSAGE
      "The command numba-ptxlink is not on PATH; activate its environment, or set NUMBA_PTXLINK_EXECUTABLE.")
  return()
endif()

# A function keeps the policies that it was defined under. A project of an older minimum has none of these, of which
# the last makes Ninja read the paths in a depfile as they are.
cmake_policy(PUSH)
foreach(policy IN ITEMS CMP0054 CMP0057 CMP0116)
  if(POLICY ${policy})
    cmake_policy(SET ${policy} NEW)
  endif()
endforeach()

function(_numba_ptxlink_archs result)
  set(archs)
  foreach(architecture IN LISTS ARGN)
    string(REGEX REPLACE "-(real|virtual)$" "" number "${architecture}")
    if(NOT number MATCHES "^[0-9]+[af]?$")
      message(FATAL_ERROR "numba_ptxlink_add_library() needs architectures by number, such as 80 or 90a, and not "
                          "\"${architecture}\"; give ARCHITECTURES, or set CMAKE_CUDA_ARCHITECTURES.")
    endif()
    list(APPEND archs --arch "sm_${number}")
  endforeach()
  set(${result} "${archs}" PARENT_SCOPE)
endfunction()

function(numba_ptxlink_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 export "" "MODULE;OUTPUT_DIRECTORY" "SOURCES;ARCHITECTURES;EMIT;INCLUDE_DIRECTORIES;OPTIONS")
  list(LENGTH export_SOURCES count)
  if(export_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "numba_ptxlink_add_library() does not know ${export_UNPARSED_ARGUMENTS}.")
  elseif(export_MODULE AND count EQUAL 0)
    set(source --module "${export_MODULE}")
  elseif(count EQUAL 1 AND NOT export_MODULE)
    get_filename_component(source "${export_SOURCES}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    set(depends "${source}")
  else()
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) needs one Python file as SOURCES, or a MODULE; "
                        "what the file imports is found.")
  endif()
  if(NOT export_ARCHITECTURES)
    set(export_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  endif()
  if(NOT export_ARCHITECTURES)
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) needs ARCHITECTURES, or CMAKE_CUDA_ARCHITECTURES.")
  endif()
  _numba_ptxlink_archs(archs ${export_ARCHITECTURES})
  if(NOT export_OUTPUT_DIRECTORY)
    set(export_OUTPUT_DIRECTORY "${name}")
  endif()
  get_filename_component(directory "${export_OUTPUT_DIRECTORY}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(included)
  set(searched)
  foreach(folder IN LISTS export_INCLUDE_DIRECTORIES)
    get_filename_component(folder "${folder}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND included "$<BUILD_INTERFACE:${folder}>")
    list(APPEND searched -I "${folder}")
  endforeach()
  list(PREPEND export_EMIT object)
  list(REMOVE_DUPLICATES export_EMIT)
  list(JOIN export_EMIT "," kinds)
  # COMMAND_EXPAND_LISTS makes one option, several or none of what generator expressions become, and would split all
  # else that has semicolons, which one more level keeps.
  set(options)
  foreach(option IN LISTS export_OPTIONS)
    set(kept "\\;")
    if(NOT option MATCHES "\\$<")
      set(kept "\\\\;")
    endif()
    string(REPLACE ";" "${kept}" option "${option}")
    list(APPEND options "${option}")
  endforeach()
  set(compilers)
  foreach(variable language IN ZIP_LISTS "CUDACXX;CXX" "CUDA;CXX")
    if(CMAKE_${language}_COMPILER)
      list(APPEND compilers "${variable}=${CMAKE_${language}_COMPILER}")
    endif()
  endforeach()

  # The manifest alone is written each time. Generators of Makefiles compare nothing but the OUTPUT.
  add_custom_command(
    OUTPUT "${directory}/${name}.json"
    BYPRODUCTS "${directory}/${name}.o" "${directory}/${name}.h"
    COMMAND "${CMAKE_COMMAND}" -E env ${compilers}
            "${NUMBA_PTXLINK_EXECUTABLE}" export ${source} --name "${name}" -o "${directory}"
            ${archs} --emit "${kinds}" --depfile "${directory}/${name}.json.d" ${searched}
            ${options}
    DEPENDS ${depends}
    DEPFILE "${directory}/${name}.json.d"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Exporting ${name}"
    COMMAND_EXPAND_LISTS
    VERBATIM)

  add_library(${name} STATIC "${directory}/${name}.json" "${directory}/${name}.o")
  if(CMAKE_GENERATOR MATCHES "Makefiles")
    # They miss no BYPRODUCTS that were deleted: without the manifest, all are exported again.
    add_custom_target(${name}_exported
      COMMAND sh -c "test -e \"$1.h\" && test -e \"$1.o\" || rm -f \"$1.json\"" sh "${directory}/${name}"
      VERBATIM)
    add_dependencies(${name} ${name}_exported)
  endif()
  set_source_files_properties("${directory}/${name}.o" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(language CXX)
  if("CUDA" IN_LIST languages)
    set(language CUDA)
  endif()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE ${language} NUMBA_PTXLINK_DIRECTORY "${directory}")
  target_include_directories(${name} INTERFACE "$<BUILD_INTERFACE:${directory}>" ${included})
endfunction()

cmake_policy(POP)
