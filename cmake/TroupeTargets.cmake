# What every target of Troupe gets: language level, warnings as errors, sanitizers, include root.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(TROUPE_SANITIZE "" CACHE STRING "Sanitizers to build with, for instance address,undefined or thread")
option(TROUPE_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(TROUPE_CUDA "Build the CUDA backend (needs a CUDA toolkit and NCCL)" OFF)
option(TROUPE_TESTS "Build the tests" ON)

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TROUPE_CCACHE})
endif()

add_library(troupe_options INTERFACE)
target_compile_options(troupe_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# Line tables only: enough for backtraces, and units that use CAF build in half the memory.
target_compile_options(troupe_options INTERFACE $<$<NOT:$<CONFIG:Release>>:-g1>)
if(TROUPE_SANITIZE)
  target_compile_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE})
  # GCC's own manual: sanitizers make this warning see paths that are not there.
  target_compile_options(troupe_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(TROUPE_SANITIZE MATCHES "undefined")
    target_compile_options(troupe_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(TROUPE_FUZZ)
  target_compile_options(troupe_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# troupe_library(<folder> [NO_INSTALL] SOURCES ... LINK ... [PRIVATE_LINK ...]): the one target of a folder, troupe_<folder>, alias
# troupe::<folder>. What it links privately is linked by those who use the installed package too: add it to troupeConfig.cmake.in.
function(troupe_library name)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(troupe_${name} STATIC ${ARG_SOURCES})
  add_library(troupe::${name} ALIAS troupe_${name})
  set_target_properties(troupe_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(troupe_${name} PUBLIC cxx_std_20)
  target_include_directories(troupe_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/troupe>)
  target_link_libraries(troupe_${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:troupe_options> ${ARG_PRIVATE_LINK})
  if(NOT ARG_NO_INSTALL)
    install(TARGETS troupe_${name} EXPORT troupeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# How the sanitizers behave in tests: any finding fails the program; tests/suppressions/ holds what libraries, which are not
# instrumented, are known for. Processes that a test starts inherit it.
set(TROUPE_TEST_ENVIRONMENT "")
if(TROUPE_SANITIZE)
  set(suppressions ${PROJECT_SOURCE_DIR}/tests/suppressions)
  list(APPEND TROUPE_TEST_ENVIRONMENT
    "ASAN_OPTIONS=suppressions=${suppressions}/asan.txt:detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
    "UBSAN_OPTIONS=suppressions=${suppressions}/ubsan.txt:print_stacktrace=1:halt_on_error=1"
    "LSAN_OPTIONS=suppressions=${suppressions}/lsan.txt:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${suppressions}/tsan.txt:ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1:print_suppressions=0"
    # UCX patches libc's mmap and madvise in every process that loads it; when a thread ends it then takes a lock that
    # ThreadSanitizer no longer can. The hooks are for RDMA's caches alone.
    "UCX_MEM_EVENTS=n")
endif()

# troupe_test(<name> LABEL unit|property|simulation|system SOURCES ... LINK ...): one Boost.Test program.
function(troupe_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE troupe_options ${ARG_LINK} Boost::unit_test_framework)
  target_compile_definitions(${name} PRIVATE BOOST_TEST_DYN_LINK
    TROUPE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TROUPE_BINARY="$<IF:$<TARGET_EXISTS:troupe>,$<TARGET_FILE:troupe>,>")
  add_test(NAME ${name} COMMAND ${name} --log_level=test_suite --report_level=short --color_output=no)
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${TROUPE_TEST_ENVIRONMENT}")
  if(ARG_LABEL STREQUAL system)
    # Several processes, some with deadlines: beside each other they would measure the machine.
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
