# One static library per folder of src/, one test program per folder: x_test.cc beside x.cc.
# A file's name says which instruction set it is compiled for: *_avx2.cc, *_avx512.cc.
find_package(Threads REQUIRED)
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
    add_executable(test_${name} ${tests})
    target_link_libraries(test_${name} PRIVATE tierkv_${name} GTest::gmock GTest::gtest_main)
    gtest_discover_tests(test_${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  endif()
endfunction()
