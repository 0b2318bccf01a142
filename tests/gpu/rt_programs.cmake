# The runtime on a gpu: programs written by hand, in several kinds, on the emulator.  rt_line.c is on one mesh;
# tests/rt/meshes.c on several, with the kernels of stages.cu, and turns.c with schedules and those of turns.cu.
function(nnaot_gpu_rt_program name source kernels)
  nnaot_program(gpu_${name} ${source})
  emulated_sources(gpu_${name} ${kernels})
  target_compile_definitions(gpu_${name} PRIVATE ${ARGN})
  target_include_directories(gpu_${name} PRIVATE ${CMAKE_SOURCE_DIR}/rt/cuda ${CMAKE_SOURCE_DIR}/tests/rt)
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
# Names, and what they are compiled with.
set(NNAOT_GPU_RT_PROGRAMS
    "line1 RANKS=1" "line1whole RANKS=1 MICRO=1" "line2 RANKS=2" "line4 RANKS=4" "line2whole RANKS=2 MICRO=1"
    "square4 RANKS=4 TP=2"                                  # two axes, so two communicators
    "rows1 RANKS=1 BATCH=16384" "rows2 RANKS=2 BATCH=16384" # inputs that are copied ahead, or too few
    "big2 RANKS=2 BIG=3000001"                              # several segments of pinned memory
    "ids1 RANKS=1 IDS" "ids2 RANKS=2 IDS"                   # rows that may not be readable
    "line33 RANKS=33 BATCH=66"                              # more ranks than threads can be
    "disk2 RANKS=2 SLOW_DISK"                               # where writing takes longer than a stall may
    "allocates1 RANKS=1 ALLOCATES"                          # what cannot be recorded
    "nan2 RANKS=2 NAN_AT=3" "huge2 RANKS=2 SLAB_BYTES=(INT64_C(1)<<41)")
foreach(program IN LISTS NNAOT_GPU_RT_PROGRAMS)
  string(REPLACE " " ";" words "${program}")
  list(POP_FRONT words name)
  nnaot_gpu_rt_program(${name} rt_line.c rt_line.cu ${words})
endforeach()
set(NNAOT_GPU_MESH_PROGRAMS "stages1" "stages2 TWO" "apart4 APART" "overlap4 OVERLAP" "uneven4 UNEVEN")
foreach(program IN LISTS NNAOT_GPU_MESH_PROGRAMS)
  string(REPLACE " " ";" words "${program}")
  list(POP_FRONT words name)
  nnaot_gpu_rt_program(${name} ${CMAKE_SOURCE_DIR}/tests/rt/meshes.c stages.cu "TARGET=\"cuda:sm_90\"" ${words})
endforeach()
nnaot_gpu_rt_program(turns2 ${CMAKE_SOURCE_DIR}/tests/rt/turns.c turns.cu "TARGET=\"cuda:sm_90\"" RANKS=2)
nnaot_gpu_rt_program(turns4 ${CMAKE_SOURCE_DIR}/tests/rt/turns.c turns.cu "TARGET=\"cuda:sm_90\"" RANKS=4)
# One that was not linked with NCCL, as is usual.
nnaot_gpu_rt_program(no_nccl2 rt_line.c rt_line.cu RANKS=2)
set_property(TARGET gpu_no_nccl2 PROPERTY LINK_OPTIONS "")

foreach(name steps checks ranks meshes turns lost)
  add_test(NAME gpu-rt-${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/rt_${name}.py)
  set_tests_properties(gpu-rt-${name} PROPERTIES TIMEOUT 300 ENVIRONMENT
    "PROGRAMS=${CMAKE_CURRENT_BINARY_DIR}/rt;CPU_PROGRAMS=${CMAKE_BINARY_DIR}/tests/rt;COMMON=${CMAKE_SOURCE_DIR}/tests/rt")
endforeach()

add_subdirectory(rt_gpu)
