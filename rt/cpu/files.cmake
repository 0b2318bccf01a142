# The cpu target: sources relative to rt/, and how they are compiled.
set(CPU_FILES
    cpu/device.c cpu/comm.c cpu/isa.c cpu/processor.c cpu/peaks.c
    cpu/scratch.c cpu/copy.c cpu/swap.c cpu/boxes.c cpu/tile.c
    cpu/gemm.c cpu/fpmath.c cpu/fpmath_convert.c cpu/linear.c cpu/conv.c cpu/conv_1x1.c cpu/taps.c cpu/conv_own.c cpu/conv_depthwise.c cpu/pool.c cpu/resample.c
    cpu/wide.c cpu/softmax.c cpu/norm.c cpu/batch_norm.c
    cpu/attention.c cpu/attention_back.c cpu/loss.c
    cpu/recurrent.c cpu/pairs.c cpu/lstm.c cpu/gru.c cpu/rnn.c
    cpu/reduce.c cpu/scan.c cpu/top_k.c cpu/det.c cpu/lookup.c cpu/scatter.c cpu/select.c cpu/experts.c
    cpu/shape.c cpu/pad.c cpu/dropout.c cpu/noise.c cpu/optimizers.c)
# The library of kernels (cpu/library.h): oneDNN, or none.
set(CPU_DNNL_FILES cpu/dnnl.c cpu/dnnl_isa.c cpu/dnnl_products.c cpu/dnnl_conv.c)
set(CPU_OWN_FILES cpu/no_library.c cpu/no_library_isa.c)

# Vector code for square roots and comparisons without any change of results; fused multiply-add, also
# in strict C17.
set(CPU_OPTIONS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)
set_source_files_properties(${CPU_FILES} ${CPU_DNNL_FILES} ${CPU_OWN_FILES} PROPERTIES
    COMPILE_OPTIONS "${CPU_OPTIONS}")
set_source_files_properties(${CPU_DNNL_FILES} PROPERTIES INCLUDE_DIRECTORIES "${NNAOT_DNNL}/include")
