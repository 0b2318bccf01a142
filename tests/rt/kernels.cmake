# The kernels, against naive loops.  tests/ops compares every row's kernel with its reference; here are
# the sizes that several threads share, the ends of blocks, and what goes wrong.
foreach(name math products attention rows move)
  nnaot_unit_test(rt-kernels-${name} kernels_${name}.c nnrt_cpu PROCESSORS 2)
endforeach()
