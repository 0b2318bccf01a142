# The cuda target: sources relative to rt/.  tests/gpu/emulator compiles the same ones as C++.

# C over the CUDA runtime and its libraries.
set(CUDA_C_FILES cuda/gpu.c cuda/check.c cuda/device.c cuda/step.c
    cuda/swap.c cuda/collectives.c cuda/moves.c cuda/comm_threads.c cuda/comm_host.c cuda/nccl.c cuda/watch.c
    cuda/classifier.c cuda/linear.c cuda/products.c cuda/measure.c cuda/tune.c
    cuda/attention.c cuda/attention_dnn.c cuda/attention_own.c cuda/conv.c cuda/recurrent.c
    cuda/dnn.c cuda/dnn_plan.c cuda/cudnn_plans.c)

# CUDA C: kernels and their launches.
set(CUDA_FILES cuda/ranks.cu cuda/copy.cu
    cuda/batch_norm.cu cuda/batch_norm_sums.cu cuda/checksums.cu cuda/dropout.cu cuda/loss.cu cuda/narrow.cu
    cuda/norm_f32.cu cuda/norm_bf16.cu cuda/norm_f16.cu cuda/optimizers.cu
    cuda/pool.cu cuda/reduce.cu cuda/resample.cu cuda/scan.cu cuda/softmax.cu cuda/softmax_back.cu cuda/sum_squares.cu
    cuda/epilogue.cu cuda/random.cu cuda/lookup.cu cuda/scatter.cu cuda/select.cu cuda/experts.cu cuda/top_k.cu cuda/det.cu cuda/noise.cu cuda/pack.cu cuda/pad.cu cuda/shape.cu cuda/boxes.cu
    cuda/attention_kernels.cu cuda/conv_kernels.cu cuda/recurrent.cu)
