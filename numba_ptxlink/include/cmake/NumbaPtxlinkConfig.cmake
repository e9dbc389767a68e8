# find_package(NumbaPtxlink CONFIG) finds it where the bin folder of its environment is on PATH, and in builds of
# scikit-build-core; else with CMAKE_PREFIX_PATH, or NumbaPtxlink_DIR, from `numba-ptxlink --cmake-dir`.
#
# numba_ptxlink_add_library(NAME SOURCES udfs.py... | MODULE package.module
#                           [ARCHITECTURES 80 90] [EMIT KIND...] [INCLUDE_DIRECTORIES DIR...] [DEPENDS FILE...]
#                           [OUTPUT_DIRECTORY DIR] [OPTIONS OPTION...] [HOST] [QUIET])
#
# adds the target NAME, a static library of the functions and kernels in a Python file. Targets that link it find
# the header NAME.h, and take its device code into their device link: as machine code, or as LTO-IR where
# INTERPROCEDURAL_OPTIMIZATION is on. Of several SOURCES, each has a header that is called like it. It runs one
# command, again whenever a file changes that Python has imported or read, or one of DEPENDS:
#
#   numba-ptxlink export udfs.py --name NAME -o DIR --arch sm_80 --arch sm_90 --emit object,KIND... -I DIR... OPTION...
#
# with --cuda for the release of the project's nvcc, unless OPTIONS have that or --ptx-isa. ARCHITECTURES may be
# native, all and all-major. QUIET shows no list of files.
# HOST compiles the host versions of the functions, too, by the C++ compiler. A project without CUDA gets these alone.
# INCLUDE_DIRECTORIES have the headers that define structs for the functions; what links NAME searches them, too,
# in this build. The headers that are made are a file set: install(TARGETS NAME EXPORT ... FILE_SET HEADERS).
# OPTIONS may have generator expressions, such as "$<$<CONFIG:Debug>:--lineinfo>", and nothing that moves files.
# ARCHITECTURES defaults to CMAKE_CUDA_ARCHITECTURES, DIR to ${CMAKE_CURRENT_BINARY_DIR}/NAME. The target property
# NUMBA_PTXLINK_DIRECTORY is DIR.
#
# With -DNumbaPtxlink_CPU=ON the CUDA programs of the build run without a GPU, by `numba-ptxlink cpu -- PROGRAM`;
# NumbaPtxlinkCPU.cmake says more.

if(CMAKE_VERSION VERSION_LESS 3.24)
  set(NumbaPtxlink_FOUND FALSE)
  set(NumbaPtxlink_NOT_FOUND_MESSAGE "This is CMake ${CMAKE_VERSION}, and the package needs 3.24 or later.")
  return()
endif()
foreach(component IN LISTS NumbaPtxlink_FIND_COMPONENTS)
  if(NumbaPtxlink_FIND_REQUIRED_${component})
    set(NumbaPtxlink_FOUND FALSE)
    set(NumbaPtxlink_NOT_FOUND_MESSAGE "NumbaPtxlink has no components, and ${component} is asked for; leave it out.")
    return()
  endif()
endforeach()
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
# The cache of a build folder outlives an environment that is moved, deleted, or given another Python.
execute_process(COMMAND "${NUMBA_PTXLINK_EXECUTABLE}" --version
                RESULT_VARIABLE _numba_ptxlink_status OUTPUT_QUIET ERROR_VARIABLE _numba_ptxlink_error)
if(NOT _numba_ptxlink_status EQUAL 0)
  set(NumbaPtxlink_FOUND FALSE)
  set(NumbaPtxlink_NOT_FOUND_MESSAGE
      "NUMBA_PTXLINK_EXECUTABLE is ${NUMBA_PTXLINK_EXECUTABLE}, which cannot be run (${_numba_ptxlink_status}). \
${_numba_ptxlink_error} Configure with --fresh to search for it again, or set NUMBA_PTXLINK_EXECUTABLE.")
  return()
endif()

if(NumbaPtxlink_CPU)
  include("${CMAKE_CURRENT_LIST_DIR}/NumbaPtxlinkCPU.cmake")
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
    if(number MATCHES "^[0-9]+[af]?$")
      list(APPEND archs --arch "sm_${number}")
    elseif(architecture MATCHES "^(native|all|all-major)$")
      list(APPEND archs --arch "${architecture}")
    else()
      message(FATAL_ERROR "numba_ptxlink_add_library() needs architectures such as 80, 90a or native, and not "
                          "\"${architecture}\"; give ARCHITECTURES, or set CMAKE_CUDA_ARCHITECTURES.")
    endif()
  endforeach()
  set(${result} "${archs}" PARENT_SCOPE)
endfunction()

function(numba_ptxlink_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 export "HOST;QUIET" "MODULE;OUTPUT_DIRECTORY"
                        "SOURCES;ARCHITECTURES;EMIT;INCLUDE_DIRECTORIES;DEPENDS;OPTIONS")
  # A function sees the variables of its caller.
  set(source)
  set(stems)
  set(depends)
  list(LENGTH export_SOURCES count)
  if(export_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "numba_ptxlink_add_library() does not know ${export_UNPARSED_ARGUMENTS}.")
  elseif("${export_OPTIONS}" MATCHES "(^|[;:])((-o|--out-dir|--name|--depfile)([;=>]|$))")
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has ${CMAKE_MATCH_3} among its OPTIONS, and what links "
                        "${name} would miss its files; give OUTPUT_DIRECTORY, or name the target otherwise.")
  elseif(export_MODULE AND count EQUAL 0)
    set(source --module "${export_MODULE}" --name "${name}")
    set(stems "${name}")
  elseif(NOT count EQUAL 0 AND NOT export_MODULE)
    foreach(file IN LISTS export_SOURCES)
      get_filename_component(file "${file}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
      get_filename_component(stem "${file}" NAME_WLE)
      if(stem IN_LIST stems)
        message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has two SOURCES called ${stem}.py, and a header is "
                            "called like its file; rename one, or make a target of each.")
      endif()
      get_source_file_property(generated "${file}" GENERATED)
      if(NOT generated AND NOT EXISTS "${file}")
        message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has ${file} among its SOURCES, and there is no such file; "
                            "correct the path, or set its property GENERATED where the build makes it.")
      endif()
      list(APPEND source "${file}")
      list(APPEND stems "${stem}")
    endforeach()
    set(depends ${source})
    if(count EQUAL 1)
      list(APPEND source --name "${name}")
      set(stems "${name}")
    endif()
  else()
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) needs Python files as SOURCES, or a MODULE; "
                        "what the files import is found.")
  endif()
  foreach(file IN LISTS export_DEPENDS)
    get_filename_component(file "${file}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND depends "${file}")
  endforeach()
  if(NOT export_ARCHITECTURES)
    set(export_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(export_HOST AND NOT "CXX" IN_LIST languages)
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has HOST, and the project does not have the language CXX; "
                        "add it to project().")
  endif()
  # A project without CUDA takes host versions alone, which do not depend on the architecture.
  set(kinds object)
  if(export_HOST AND NOT "CUDA" IN_LIST languages)
    set(kinds)
    if(NOT export_ARCHITECTURES)
      set(export_ARCHITECTURES 75)
    endif()
  endif()
  if(NumbaPtxlink_CPU)
    set(export_ARCHITECTURES "${NumbaPtxlink_CPU_ARCHITECTURE}")
    list(APPEND export_OPTIONS --lineinfo)
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
  list(APPEND kinds ${export_EMIT})
  if(export_HOST)
    list(APPEND kinds host)
  endif()
  list(REMOVE_DUPLICATES kinds)
  set(with_object FALSE)
  if("object" IN_LIST kinds)
    set(with_object TRUE)
  endif()
  list(JOIN kinds "," kinds)
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
  if(export_QUIET)
    list(APPEND options --quiet)
  endif()
  # nvcc may be older than the compilers of the export, and refuses what is newer than itself.
  if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT "${export_OPTIONS}" MATCHES "--(cuda|ptx-isa)")
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${CMAKE_CUDA_COMPILER_VERSION}")
    list(APPEND options --cuda "${release}")
  endif()
  set(compilers)
  if(CMAKE_CUDA_COMPILER)
    list(APPEND compilers "CUDACXX=${CMAKE_CUDA_COMPILER}")
  endif()
  if(CMAKE_CXX_COMPILER)
    list(APPEND compilers "CXX=${CMAKE_CXX_COMPILER}")
  endif()

  set(manifests)
  set(objects)
  set(headers)
  set(host_sources)
  foreach(stem IN LISTS stems)
    list(APPEND manifests "${directory}/${stem}.json")
    list(APPEND headers "${directory}/${stem}.h")
    if(with_object)
      list(APPEND objects "${directory}/${stem}.o")
    endif()
    if(export_HOST)
      list(APPEND host_sources "${directory}/${stem}.host.cpp")
    endif()
  endforeach()
  list(GET manifests 0 first)
  # What an earlier configuration exported to the target's own folder could be included all the same.
  file(GLOB former "${CMAKE_CURRENT_BINARY_DIR}/${name}/*.h")
  foreach(header IN LISTS former)
    string(REGEX REPLACE "(\\.launch)?\\.h$" ".json" manifest "${header}")
    file(STRINGS "${header}" line LIMIT_COUNT 1)
    if(line MATCHES "^/\\* .*: generated by numba-ptxlink" AND NOT manifest IN_LIST manifests)
      file(REMOVE "${header}")
    endif()
  endforeach()

  # The manifests alone are written each time. Generators of Makefiles compare nothing but the OUTPUT.
  add_custom_command(
    OUTPUT ${manifests}
    BYPRODUCTS ${objects} ${headers} ${host_sources}
    COMMAND "${CMAKE_COMMAND}" -E env ${compilers}
            "${NUMBA_PTXLINK_EXECUTABLE}" export ${source} -o "${directory}"
            ${archs} --emit "${kinds}" --depfile "${first}.d" ${searched}
            ${options}
    DEPENDS ${depends}
    DEPFILE "${first}.d"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Exporting ${name}"
    COMMAND_EXPAND_LISTS
    VERBATIM)

  add_library(${name} STATIC ${manifests} ${objects} ${host_sources})
  if(CMAKE_GENERATOR MATCHES "Makefiles")
    # They miss no BYPRODUCTS that were deleted: without the manifest, all are exported again.
    add_custom_target(${name}_exported
      COMMAND sh -c "for file do test -e \"$file\" || rm -f \"$0\"; done" "${first}" ${objects} ${headers} ${host_sources}
      VERBATIM)
    add_dependencies(${name} ${name}_exported)
  endif()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  if(export_HOST)
    # These options follow those of the project, which could change results.
    set_source_files_properties(${host_sources} PROPERTIES GENERATED TRUE LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION TRUE
                                COMPILE_OPTIONS "-ffp-contract=off;-fno-fast-math")
    target_include_directories(${name} PRIVATE ${included} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  endif()
  set(language CXX)
  if("CUDA" IN_LIST languages)
    set(language CUDA)
  endif()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE ${language} NUMBA_PTXLINK_DIRECTORY "${directory}")
  # What the headers include of this package is installed with them.
  get_filename_component(include "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." ABSOLUTE)
  target_sources(${name} INTERFACE FILE_SET HEADERS BASE_DIRS "${directory}" "${include}"
                 FILES ${headers} "${include}/numba_ptxlink/array_view.h")
  target_include_directories(${name} INTERFACE ${included})
endfunction()

cmake_policy(POP)
