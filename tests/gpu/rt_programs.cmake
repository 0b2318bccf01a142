# The runtime on a gpu: rt_line.c is a program written by hand, in several kinds, on the emulator.
function(nnaot_gpu_rt_program name)
  nnaot_program(gpu_${name} rt_line.c)
  emulated_sources(gpu_${name} rt_line.cu)
  target_compile_definitions(gpu_${name} PRIVATE ${ARGN})
  target_include_directories(gpu_${name} PRIVATE ${CMAKE_SOURCE_DIR}/rt/cuda)
  # The common part's archive alone, since nnrt would bring the device that is a processor.
  target_link_libraries(gpu_${name} PRIVATE nnrt_cuda_emulated $<TARGET_FILE:nnrt> nnrt_cuda_emulated
                                               $<TARGET_FILE:nnrt> OpenMP::OpenMP_C ${CMAKE_DL_LIBS} m)
  add_dependencies(gpu_${name} nnrt)
  # Programs look for NCCL when they run, unless they were linked with it.
  target_link_options(gpu_${name} PRIVATE -Wl,--undefined=ncclGetVersion)
  add_custom_command(TARGET gpu_${name} POST_BUILD VERBATIM
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/rt/add_payload.py $<TARGET_FILE:gpu_${name}>)
  set_target_properties(gpu_${name} PROPERTIES LINKER_LANGUAGE CXX
                        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/rt")
  add_dependencies(gpu_rt gpu_${name})
endfunction()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(OpenMP REQUIRED COMPONENTS C)
add_custom_target(gpu_rt ALL)
nnaot_gpu_rt_program(line1 RANKS=1)
nnaot_gpu_rt_program(line1whole RANKS=1 MICRO=1)
nnaot_gpu_rt_program(line2 RANKS=2)
nnaot_gpu_rt_program(line4 RANKS=4)
nnaot_gpu_rt_program(line2whole RANKS=2 MICRO=1)
nnaot_gpu_rt_program(rows1 RANKS=1 BATCH=16384) # inputs that go by way of the gpu's memory
nnaot_gpu_rt_program(rows2 RANKS=2 BATCH=16384)
nnaot_gpu_rt_program(big2 RANKS=2 BIG=3000001) # several segments of pinned memory
nnaot_gpu_rt_program(nan2 RANKS=2 NAN_AT=3)
nnaot_gpu_rt_program(huge2 RANKS=2 "SLAB_BYTES=(INT64_C(1) << 41)")
# One that was not linked with NCCL, as is usual.
nnaot_gpu_rt_program(no_nccl2 RANKS=2)
set_property(TARGET gpu_no_nccl2 PROPERTY LINK_OPTIONS "")

foreach(name steps checks ranks lost)
  add_test(NAME gpu-rt-${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/rt_${name}.py)
  set_tests_properties(gpu-rt-${name} PROPERTIES TIMEOUT 300 ENVIRONMENT
    "PROGRAMS=${CMAKE_CURRENT_BINARY_DIR}/rt;CPU_PROGRAMS=${CMAKE_BINARY_DIR}/tests/rt;COMMON=${CMAKE_SOURCE_DIR}/tests/rt")
endforeach()
