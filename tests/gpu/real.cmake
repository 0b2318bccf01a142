# Programs that nvcc compiles and links with the real libraries: built here, and run on a machine with a GPU, except for
# gpu-plans, which needs none.

# Every formula of ops.def compiles as CUDA C.  Building is the test.
add_library(cuda_formulas OBJECT formulas.cu)
set_target_properties(cuda_formulas PROPERTIES CUDA_ARCHITECTURES 90-real)
target_include_directories(cuda_formulas PRIVATE ${CMAKE_SOURCE_DIR}/rt ${CMAKE_SOURCE_DIR}/passes)

if(KERNEL_TRIALS)
  kernel_trials(gpu_kernels cuda kernels.c ${NNAOT_GPU_RUNTIME} $<TARGET_FILE:nnrt> ${NNAOT_GPU_RUNTIME}
    CUDA::cudart_static ${NNAOT_LIB_cublasLt} ${NNAOT_LIB_cudnn} ${NNAOT_LIB_nccl} OpenMP::OpenMP_C)
  set_target_properties(gpu_kernels PROPERTIES LINKER_LANGUAGE CXX
                        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/gpu")
  add_dependencies(gpu_kernels nnrt)
endif()

# Plans of the real cuDNN for a GPU that is not present.
nnaot_program(gpu_plans plans.c)
target_link_libraries(gpu_plans PRIVATE ${NNAOT_GPU_RUNTIME} nnrt CUDA::cudart_static CUDA::cublasLt
                      ${NNAOT_LIB_cudnn})
set_target_properties(gpu_plans PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(gpu_plans nnaot_standin)
nnaot_test(gpu-plans COMMAND gpu_plans ${CMAKE_SOURCE_DIR}/rt/cuda/devices/h200.json . PROPERTIES TIMEOUT 600
           ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:nnaot_standin>:$ENV{LD_LIBRARY_PATH}" LABELS e2e)

# cuDNN's properties of a GPU, for comparison with rt/cuda/devices.
nnaot_program(device_properties device_properties.c)
target_link_libraries(device_properties PRIVATE CUDA::cudart_static ${NNAOT_LIB_cudnn})
target_link_options(device_properties PRIVATE ${NNAOT_SANITIZERS})
target_include_directories(device_properties SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NNAOT_CUDNN_INCLUDE})
set_target_properties(device_properties PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/gpu")
