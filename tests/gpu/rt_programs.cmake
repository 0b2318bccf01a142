# The runtime on a GPU: programs written by hand, on the emulator.  rt_line.c is on one mesh; tests/rt/meshes.c on
# several, with the kernels of stages.cu, and turns.c with schedules and those of turns.cu.
include(${CMAKE_SOURCE_DIR}/tests/rt/programs.cmake)
find_package(OpenMP REQUIRED COMPONENTS C)

add_custom_target(gpu_rt ALL)
function(nnaot_gpu_rt_program target)
  nnaot_program(${target} ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/rt/cuda ${CMAKE_SOURCE_DIR}/tests/rt)
  target_compile_definitions(${target} PRIVATE "TARGET=\"cuda:sm_90\"")
  # The archive of the common code alone, since nnrt would add the CPU as a device.
  target_link_libraries(${target} PRIVATE nnrt_cuda_emulated $<TARGET_FILE:nnrt> nnrt_cuda_emulated
                                          $<TARGET_FILE:nnrt> OpenMP::OpenMP_C ${CMAKE_DL_LIBS} m)
  add_dependencies(${target} nnrt)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(gpu_rt ${target})
endfunction()

# A program, its kernels, and the table of its variants: here for the emulator, in rt_gpu for a GPU.
set(rt ${CMAKE_SOURCE_DIR}/tests/rt)
set(GPU_RT_line   ${CMAKE_CURRENT_SOURCE_DIR}/rt_line.c ${CMAKE_CURRENT_SOURCE_DIR}/rt_line.cu)
set(GPU_RT_meshes ${rt}/meshes.c                        ${CMAKE_CURRENT_SOURCE_DIR}/stages.cu)
set(GPU_RT_turns  ${rt}/turns.c                         ${CMAKE_CURRENT_SOURCE_DIR}/turns.cu)
nnaot_rt_names(GPU_RT_line_names   ${CMAKE_CURRENT_SOURCE_DIR}/rt_line_programs.def)
nnaot_rt_names(GPU_RT_meshes_names ${rt}/mesh_programs.def)
nnaot_rt_names(GPU_RT_turns_names  ${rt}/turns_programs.def)
list(REMOVE_ITEM GPU_RT_line_names no_nccl2)
foreach(kind line meshes turns)
  list(TRANSFORM GPU_RT_${kind}_names PREPEND gpu_)
  list(GET GPU_RT_${kind} 0 program)
  list(GET GPU_RT_${kind} 1 kernels)
  nnaot_gpu_rt_program(gpu_rt_${kind} ${program})
  emulated_sources(gpu_rt_${kind} ${kernels})
  # Programs load NCCL at run time, unless they were linked with it.
  target_link_options(gpu_rt_${kind} PRIVATE -Wl,--undefined=ncclGetVersion)
  nnaot_rt_finish(gpu_rt_${kind} ${CMAKE_CURRENT_BINARY_DIR}/rt ${GPU_RT_${kind}_names})
endforeach()
# One without linked NCCL, as is usual.
nnaot_gpu_rt_program(gpu_no_nccl2 $<TARGET_OBJECTS:gpu_rt_line>)
nnaot_rt_finish(gpu_no_nccl2 ${CMAKE_CURRENT_BINARY_DIR}/rt)

foreach(name steps checks ranks meshes turns lost)
  nnaot_script_test(gpu-rt-${name} rt_${name}.py RUNTIME PROPERTIES TIMEOUT 300 ENVIRONMENT
    "PROGRAMS=${CMAKE_CURRENT_BINARY_DIR}/rt" "CPU_PROGRAMS=${CMAKE_BINARY_DIR}/tests/rt" "COMMON=${CMAKE_SOURCE_DIR}/tests/rt")
endforeach()

add_subdirectory(rt_gpu)
