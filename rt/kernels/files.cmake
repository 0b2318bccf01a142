# The kernels: sources relative to rt/, and how they are compiled.
set(KERNEL_FILES
    kernels/scratch.c kernels/copy.c kernels/dnnl.c kernels/tile.c
    kernels/linear.c kernels/conv.c kernels/pool.c
    kernels/softmax.c kernels/norm.c kernels/batch_norm.c
    kernels/attention.c kernels/attention_back.c kernels/loss.c
    kernels/reduce.c kernels/scan.c kernels/lookup.c
    kernels/shape.c kernels/pad.c kernels/dropout.c kernels/optimizers.c)

# Vector code for square roots and comparisons without any change of results; multiply-add in one
# step, also where C17 is asked for strictly.
set_source_files_properties(${KERNEL_FILES} PROPERTIES
    COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=fast"
    INCLUDE_DIRECTORIES "${NNAOT_DNNL}/include")
