# find_package(NumbaPtxlink CONFIG) finds this package if the bin folder of its environment is on PATH, and in builds of
# scikit-build-core. Otherwise set CMAKE_PREFIX_PATH or NumbaPtxlink_DIR to the output of `numba-ptxlink --cmake-dir`.
#
# numba_ptxlink_add_library(NAME SOURCES udfs.py... | MODULE package.module
#                           [ARCHITECTURES 80 90] [EMIT KIND...] [INCLUDE_DIRECTORIES DIR...] [DEPENDS FILE...]
#                           [OUTPUT_DIRECTORY DIR] [OPTIONS OPTION...] [HOST] [QUIET])
#
# adds the target NAME, a static library of the functions and kernels in Python files. Targets that link NAME find the
# header NAME.h, and their device link includes the device code of NAME: as machine code, or as LTO-IR if
# INTERPROCEDURAL_OPTIMIZATION is on. With several SOURCES, there is one header for each, with the name of the source.
# The target runs one command, and runs it again after a change of a file that Python has imported or read, or of one
# of DEPENDS:
#
#   numba-ptxlink export udfs.py --name NAME -o DIR --arch sm_80 --arch sm_90 --emit object,KIND... -I DIR... OPTION...
#
# with --cuda for the release of the project's nvcc, unless OPTIONS have that or --ptx-isa. ARCHITECTURES may be
# native, all and all-major. QUIET shows no list of files.
# HOST compiles the host versions of the functions, too, with the C++ compiler. A project without the language CUDA gets
# the host versions only. INCLUDE_DIRECTORIES are the folders of headers that define structs for the functions; in this
# build, targets that link NAME search these folders, too. The exported headers are a file set:
# install(TARGETS NAME EXPORT ... FILE_SET HEADERS) installs them. OPTIONS may contain generator expressions, such as
# "$<$<CONFIG:Debug>:--lineinfo>", but no option that changes the paths of the files (-o, --name, --depfile).
# ARCHITECTURES defaults to CMAKE_CUDA_ARCHITECTURES, and DIR to ${CMAKE_CURRENT_BINARY_DIR}/NAME. The target property
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
    set(NumbaPtxlink_NOT_FOUND_MESSAGE
        "find_package() requires the component ${component}, and NumbaPtxlink has no components; remove it.")
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
# Run the command once: the cache of the build folder keeps NUMBA_PTXLINK_EXECUTABLE after the environment has been moved
# or deleted, or its Python replaced.
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

# A function runs with the policies that were set where it was defined. A project with an older cmake_minimum_required
# does not set these policies. CMP0116 makes Ninja use the paths in a depfile unchanged.
cmake_policy(PUSH)
foreach(policy IN ITEMS CMP0054 CMP0057 CMP0116)
  if(POLICY ${policy})
    cmake_policy(SET ${policy} NEW)
  endif()
endforeach()

function(_numba_ptxlink_arch_flags result)
  set(flags)
  foreach(architecture IN LISTS ARGN)
    string(REGEX REPLACE "-(real|virtual)$" "" number "${architecture}")
    if(number MATCHES "^[0-9]+[af]?$")
      list(APPEND flags --arch "sm_${number}")
    elseif(architecture MATCHES "^(native|all|all-major)$")
      list(APPEND flags --arch "${architecture}")
    else()
      message(FATAL_ERROR "numba_ptxlink_add_library() needs architectures such as 80, 90a or native, and not "
                          "\"${architecture}\"; give ARCHITECTURES, or set CMAKE_CUDA_ARCHITECTURES.")
    endif()
  endforeach()
  set(${result} "${flags}" PARENT_SCOPE)
endfunction()

function(numba_ptxlink_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 export "HOST;QUIET" "MODULE;OUTPUT_DIRECTORY"
                        "SOURCES;ARCHITECTURES;EMIT;INCLUDE_DIRECTORIES;DEPENDS;OPTIONS")
  # A CMake function can read the variables of its caller, so empty the lists that are appended to.
  set(inputs)
  set(stems)
  set(depends)
  list(LENGTH export_SOURCES source_count)
  if(export_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "numba_ptxlink_add_library() got the unknown arguments ${export_UNPARSED_ARGUMENTS}; remove them.")
  elseif("${export_OPTIONS}" MATCHES "(^|[;:])((-o|--out-dir|--name|--depfile)([;=>]|$))")
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has ${CMAKE_MATCH_3} among its OPTIONS, and targets that "
                        "link ${name} would not find its files; give OUTPUT_DIRECTORY, or rename the target.")
  elseif(export_MODULE AND source_count EQUAL 0)
    set(inputs --module "${export_MODULE}" --name "${name}")
    set(stems "${name}")
  elseif(NOT source_count EQUAL 0 AND NOT export_MODULE)
    foreach(file IN LISTS export_SOURCES)
      get_filename_component(file "${file}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
      get_filename_component(stem "${file}" NAME_WLE)
      if(stem IN_LIST stems)
        message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has two SOURCES called ${stem}.py, whose headers would "
                            "have the same name; rename one file, or add a target for each.")
      endif()
      get_source_file_property(generated "${file}" GENERATED)
      if(NOT generated AND NOT EXISTS "${file}")
        message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has ${file} among its SOURCES, and there is no such file; "
                            "correct the path, or set the file's property GENERATED if the build writes it.")
      endif()
      list(APPEND inputs "${file}")
      list(APPEND stems "${stem}")
    endforeach()
    set(depends ${inputs})
    if(source_count EQUAL 1)
      list(APPEND inputs --name "${name}")
      set(stems "${name}")
    endif()
  else()
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has neither SOURCES nor a MODULE, or has both; "
                        "give Python files as SOURCES, or one MODULE. Files that they import need not be given.")
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
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) has HOST, and the project does not enable the language CXX; "
                        "add CXX to project().")
  endif()
  # A project without the language CUDA gets host versions only, which do not depend on the architecture.
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
    message(FATAL_ERROR "numba_ptxlink_add_library(${name}) needs an architecture; give ARCHITECTURES, set "
                        "CMAKE_CUDA_ARCHITECTURES, or give HOST for functions that no kernel calls.")
  endif()
  _numba_ptxlink_arch_flags(arch_flags ${export_ARCHITECTURES})
  if(NOT export_OUTPUT_DIRECTORY)
    set(export_OUTPUT_DIRECTORY "${name}")
  endif()
  get_filename_component(directory "${export_OUTPUT_DIRECTORY}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(include_directories)
  set(include_flags)
  foreach(folder IN LISTS export_INCLUDE_DIRECTORIES)
    get_filename_component(folder "${folder}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND include_directories "$<BUILD_INTERFACE:${folder}>")
    list(APPEND include_flags -I "${folder}")
  endforeach()
  list(APPEND kinds ${export_EMIT})
  if(export_HOST)
    list(APPEND kinds host)
  endif()
  list(REMOVE_DUPLICATES kinds)
  set(has_object FALSE)
  if("object" IN_LIST kinds)
    set(has_object TRUE)
  endif()
  list(JOIN kinds "," kinds)
  # COMMAND_EXPAND_LISTS splits each option at its semicolons. That is right for a generator expression, which may give
  # no option or several. A semicolon in any other option is kept by one more level of escapes.
  set(options)
  foreach(option IN LISTS export_OPTIONS)
    set(escaped_semicolon "\\;")
    if(NOT option MATCHES "\\$<")
      set(escaped_semicolon "\\\\;")
    endif()
    string(REPLACE ";" "${escaped_semicolon}" option "${option}")
    list(APPEND options "${option}")
  endforeach()
  if(export_QUIET)
    list(APPEND options --quiet)
  endif()
  # nvcc may be older than the compilers of the export, and rejects objects of a newer release than its own.
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
    if(has_object)
      list(APPEND objects "${directory}/${stem}.o")
    endif()
    if(export_HOST)
      list(APPEND host_sources "${directory}/${stem}.host.cpp")
    endif()
  endforeach()
  list(GET manifests 0 first_manifest)
  # Delete headers of an earlier configuration from the target's default folder, since they could still be included.
  file(GLOB old_headers "${CMAKE_CURRENT_BINARY_DIR}/${name}/*.h")
  foreach(header IN LISTS old_headers)
    string(REGEX REPLACE "(\\.launch)?\\.h$" ".json" manifest "${header}")
    file(STRINGS "${header}" line LIMIT_COUNT 1)
    if(line MATCHES "^/\\* .*: generated by numba-ptxlink" AND NOT manifest IN_LIST manifests)
      file(REMOVE "${header}")
    endif()
  endforeach()

  # OUTPUT lists the manifests only, since each export writes them, but other files only if they change. Makefiles
  # compare the times of OUTPUT, and ignore BYPRODUCTS.
  add_custom_command(
    OUTPUT ${manifests}
    BYPRODUCTS ${objects} ${headers} ${host_sources}
    COMMAND "${CMAKE_COMMAND}" -E env ${compilers}
            "${NUMBA_PTXLINK_EXECUTABLE}" export ${inputs} -o "${directory}"
            ${arch_flags} --emit "${kinds}" --depfile "${first_manifest}.d" ${include_flags}
            ${options}
    DEPENDS ${depends}
    DEPFILE "${first_manifest}.d"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Exporting ${name}"
    COMMAND_EXPAND_LISTS
    VERBATIM)

  add_library(${name} STATIC ${manifests} ${objects} ${host_sources})
  if(CMAKE_GENERATOR MATCHES "Makefiles")
    # Makefiles do not notice that BYPRODUCTS were deleted. So if one is missing, delete the manifest: make then exports
    # all files again.
    add_custom_target(${name}_exported
      COMMAND sh -c "for file do test -e \"$file\" || rm -f \"$0\"; done" "${first_manifest}" ${objects} ${headers} ${host_sources}
      VERBATIM)
    add_dependencies(${name} ${name}_exported)
  endif()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  if(export_HOST)
    # These options come after those of the project, and undo options that could change results: the host version has
    # to compute the same values as the device version.
    set_source_files_properties(${host_sources} PROPERTIES GENERATED TRUE LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION TRUE
                                COMPILE_OPTIONS "-ffp-contract=off;-fno-fast-math")
    target_include_directories(${name} PRIVATE ${include_directories} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  endif()
  set(linker_language CXX)
  if("CUDA" IN_LIST languages)
    set(linker_language CUDA)
  endif()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE ${linker_language} NUMBA_PTXLINK_DIRECTORY "${directory}")
  # The exported headers include array_view.h, so it is installed with them.
  get_filename_component(include_folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." ABSOLUTE)
  target_sources(${name} INTERFACE FILE_SET HEADERS BASE_DIRS "${directory}" "${include_folder}"
                 FILES ${headers} "${include_folder}/numba_ptxlink/array_view.h")
  target_include_directories(${name} INTERFACE ${include_directories})
endfunction()

cmake_policy(POP)
