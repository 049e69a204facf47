# One static library per folder of src/, one test program per folder: x_test.cc beside x.cc.
# A file's name says which instruction set it is compiled for: *_avx2.cc, *_avx512.cc.
find_package(Threads REQUIRED)
set(TIERKV_MODELS ${PROJECT_SOURCE_DIR}/models CACHE PATH "where tools/fetch_models.sh puts the models")
if(TIERKV_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

add_library(tierkv_options INTERFACE)
target_compile_options(tierkv_options INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
                       -fno-math-errno -fno-trapping-math -ffp-contract=off)
target_include_directories(tierkv_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(tierkv_options INTERFACE Threads::Threads)
if(TIERKV_SANITIZE)
  target_compile_options(tierkv_options INTERFACE -fsanitize=${TIERKV_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(tierkv_options INTERFACE -fsanitize=${TIERKV_SANITIZE})
endif()

set(TIERKV_AVX2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
set(TIERKV_AVX512_FLAGS ${TIERKV_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
    -mavx512vbmi -mprefer-vector-width=512)

function(tierkv_set_isa_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${TIERKV_AVX2_FLAGS}")
    elseif(source MATCHES "_avx512bf16\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                                  "${TIERKV_AVX512_FLAGS};-mavx512bf16")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${TIERKV_AVX512_FLAGS}")
    endif()
  endforeach()
endfunction()

# tierkv_library(NAME DEPS...): src/NAME/**.cc without *_test.cc, as target tierkv_NAME;
# the *_test.cc become the program test_NAME.
function(tierkv_library name)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    add_library(tierkv_${name} INTERFACE)
    target_link_libraries(tierkv_${name} INTERFACE tierkv_options ${ARGN})
  else()
    tierkv_set_isa_flags(${sources})
    add_library(tierkv_${name} STATIC ${sources})
    target_link_libraries(tierkv_${name} PUBLIC tierkv_options ${ARGN})
  endif()
  if(TIERKV_TESTS AND tests)
    tierkv_test(test_${name} "${tests}" tierkv_${name})
  endif()
endfunction()

# tierkv_test(NAME SOURCES DEPS...): a gtest program whose tests ctest knows one by one. Tests find
# the oracles' output and the models through the environment (tests/CMakeLists.txt makes the former,
# tools/fetch_models.sh the latter).
function(tierkv_test name sources)
  add_executable(${name} ${sources})
  target_compile_definitions(${name} PRIVATE TIERKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARGN} nlohmann_json::nlohmann_json GTest::gmock
                        GTest::gtest_main)
  # One variable each: a list would fall apart on its way to the test properties.
  if(name STREQUAL "test_kernels")
    set(properties ENVIRONMENT TIERKV_ORACLE_DIR=${PROJECT_BINARY_DIR}/oracle/dequantize
                   FIXTURES_REQUIRED dequantize_oracle)
  else()
    set(properties ENVIRONMENT TIERKV_MODELS=${TIERKV_MODELS})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 900 ${properties})
endfunction()
