# Programs that run all kernels of a target, through libffi; used here and in tests/gpu.
find_path(FFI_INCLUDE ffi.h PATH_SUFFIXES x86_64-linux-gnu)
find_library(FFI ffi)
set(KERNEL_TRIALS OFF)
if(FFI_INCLUDE AND FFI)
  set(KERNEL_TRIALS ON)
endif()

set(ops "${CMAKE_SOURCE_DIR}/tests/ops")
set(KERNEL_EXAMPLES ${ops}/examples.nn ${ops}/examples_a.nn ${ops}/large.nn)
if(KERNEL_TRIALS AND NOT TARGET ops_kernel_table)
  nnaot_program(ops_kernel_table ${ops}/kernel_table.c)
  target_link_libraries(ops_kernel_table PRIVATE ir)
  nnaot_library(ops_trials ${ops}/trials.c)
  target_include_directories(ops_trials PRIVATE ${CMAKE_SOURCE_DIR}/rt ${FFI_INCLUDE})
  target_link_libraries(ops_trials PUBLIC ops_harness ${FFI})
endif()

# kernel_trials(PROGRAM cpu|cuda SOURCE LIBRARY ...).  kernel_table writes the table of kernels as C: a missing kernel
# is a linker error.
function(kernel_trials program target source)
  set(table "${CMAKE_CURRENT_BINARY_DIR}/${program}_table.c")
  add_custom_command(OUTPUT ${table}
    COMMAND ops_kernel_table ${target} > ${table}
    DEPENDS ops_kernel_table VERBATIM)
  nnaot_program(${program} ${source} ${table})
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/ops ${CMAKE_SOURCE_DIR}/rt)
  target_link_libraries(${program} PRIVATE ops_trials ${ARGN})
endfunction()
